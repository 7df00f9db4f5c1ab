"""What an update may consist of, one class each; those of journals are in undo.py and replay.py.

An update takes its parts through the same stages: `begin` with the word idle (False: cannot);
`is_ready` once it is open (False: a freeze came between; the word goes back, `again` is run with
the word idle, and so on); `opened` under the open word; `fill` (the copies that do not count);
`finish` if the update is decided; then `committed` after the swap, or `cancelled` when it was
refused, or `undo` and `cancelled` when it was abandoned under the open word. Stages are generators;
each yield is a point at which others run or the process dies.
`state` is the truth that the part makes.
"""

from shared import (BLOCK_SLOTS, JOURNAL, MAX_MARKS, MAX_TOKENS, NONE, REPLAY, RING, RING_SLOTS,
	current, fill, fill_outside, n_slots, names, share)
from truth import cut, matches, must, shared


class Part:
	bumps = False  # the generation
	decides = False  # from some point on it is finished, not undone
	mode = None  # in which it makes sense; None: any
	place = property(lambda self: self.seq.place)

	def __init__(self, thread, seq):
		self.thread, self.seq = thread, seq
		self.agent, self.rules = thread.agent, thread.world.rules
		self.rnd, self.world = thread.world.rnd, thread.world
		self.pending = {}  # name -> (block, freeze count)
		self.leaving = {}  # name -> entry that the update takes out of the table
		self.header = None

	def load(self, cell):
		return self.agent.load(cell)

	def read(self, update):
		"""Header and marks, with the word idle. Two rollbacks by operators may come between
		two loads: so the word is looked at again before a byte is written by what was
		read."""
		self.header = current(self.agent, self.place.header, update)
		yield
		self.read_marks()
		yield
		if self.rules("begin-checked"):
			self.agent.fence_acquire()
			if self.load(self.thread.writer.word)[2] != update:
				return False
		self.base = self.world.history[self.thread.writer].get(update,
			{}).get(self.place.index)
		if self.header is None or self.base is None or self.header.key != self.seq.key:
			return False
		must(matches(self.header, self.base), "%r: begins update %d with %s, truth %s",
			self.thread.writer, update, self.header, self.base)
		if self.mode is not None and self.header.mode != self.mode:
			return False
		self.top = [self.slots(group) for group in self.header.layers]
		return True

	def read_marks(self):
		place = self.place
		self.frozen_slots = [self.load(cell) for cell in place.frozen_slots]
		self.frozen_rows = self.load(place.frozen_rows)
		self.freeze_count = self.load(place.freeze_count)

	def slots(self, group):
		"""Slots of a group that its blocks hold."""
		return n_slots(group, self.header.n_base)

	def entry(self, name, update):
		"""What the table has under this name, also above what the header names; None:
		nothing."""
		if name not in self.seq.entries or name in self.leaving:
			return None
		return current(self.agent, self.place.entry(name), update)

	def block_of(self, name, update):
		"""The block that this update's table has under a name."""
		return (self.pending.get(name) or self.entry(name, update))[0]

	def is_own(self, count):
		"""Nobody else has seen any slot of the block."""
		return count == self.freeze_count or (count == 0
			and not self.rules("foreign-untouched"))

	def takes_append(self, entry, group, slot):
		_, count = entry
		if self.rules("append-above-length") and slot < self.slots(group):
			return False
		if self.is_own(count):
			return True
		return count != 0 and (slot >= self.frozen_slots[group]
			or not self.rules("copy-below-frozen"))

	def replace(self, name, entry, n_filled):
		"""A block of the reserve takes the entry's place, with what is filled copied; None:
		the reserve is empty."""
		number = self.thread.take(self.seq)
		if number is None:
			return None
		blocks = self.world.blocks
		if entry is not None:
			for i in range(min(BLOCK_SLOTS, max(0, n_filled))):
				self.agent.store(blocks[number].slots[i],
					self.load(blocks[entry[0]].slots[i]))
			self.leaving[name] = entry
		self.pending[name] = (number, self.freeze_count)
		return number

	def block_to_append(self, group, slot, update):
		name = (group, slot // BLOCK_SLOTS)
		if name in self.pending:
			return self.pending[name][0]
		entry = self.entry(name, update)
		if entry is not None and self.takes_append(entry, group, slot):
			return entry[0]
		return self.replace(name, entry, self.top[group] - name[1] * BLOCK_SLOTS)

	def append(self, group, slot, value, update):
		number = self.block_to_append(group, slot, update)
		if number is None:
			return False
		yield
		self.write(number, slot, value)
		self.top[group] = max(self.top[group], slot + 1)
		yield
		return True

	def write(self, number, slot, value):
		self.agent.store(self.world.blocks[number].slots[slot % BLOCK_SLOTS], value)

	def take_out(self, update, which):
		"""These entries leave the table with this update."""
		for name in sorted(which):
			entry = self.entry(name, update)
			if entry is not None:
				self.leaving[name] = entry

	def begin(self, update):
		return self.read(update)

	def is_ready(self):
		return True

	def again(self, update):
		return True
		yield

	def opened(self, update):
		return
		yield

	def new_header(self):
		return self.header

	def fill(self, update):
		for name, entry in self.pending.items():
			fill(self.agent, self.place.entry(name), update, entry, self.rules)
			yield
		fill(self.agent, self.place.header, update, self.new_header(), self.rules)
		yield

	def finish(self, update):
		return
		yield

	def undo(self, update):
		return
		yield

	def cancelled(self):
		for number, _ in self.pending.values():
			self.thread.give_back(self.seq, number)

	def committed(self, update):
		self.seq.entries.difference_update(self.leaving)
		self.seq.entries.update(self.pending)
		for entry in self.leaving.values():
			self.thread.leave(self.seq, entry)
			yield

	def states(self):
		return {self.place.index: self.state}

	def n_marks(self):
		return len(self.state.marks) if self.rules("marks-dropped") else self.header.n_marks


class Append(Part):
	"""Says less (`keep`), more, or both. Below the committed length only copies are written."""
	mode = NONE

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		length = self.header.n_tokens
		keep = length
		if self.rnd.random() < 0.15 and length and can_cut(self.header):
			keep -= self.rnd.randint(1, min(length, 5))
			self.bumps = True
		self.top = [n_slots(group, keep) for group in self.header.layers]
		count = self.rnd.randint(1, 3)
		if keep + count > (RING_SLOTS if RING in self.header.layers else MAX_TOKENS):
			return False
		state = cut(self.base, keep)
		slots = [list(slots) for slots in state.image.base]
		for slot in range(keep, keep + count):
			for group in self.header.layers:
				slots[group].append(self.world.token())
				ok = yield from self.append(group, slot, slots[group][-1], update)
				if not ok:
					return False
		slots = tuple(tuple(group) for group in slots)
		self.state = state._replace(
			image=state.image._replace(n_tokens=keep + count, base=slots, seen=slots))
		return True

	def new_header(self):
		n_tokens = self.state.image.n_tokens
		return self.header._replace(n_tokens=n_tokens, n_base=n_tokens,
			n_marks=self.n_marks())


def can_cut(header):
	"""Does a length say what the sequence was? Not once a ring is full or a version counts."""
	return not header.now and (RING not in header.layers or header.n_tokens <= RING_SLOTS)


class Rollback(Part):
	"""Says less. The blocks above stay in the table as a reserve, or leave it."""
	mode = NONE
	bumps = True

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok or not can_cut(self.header):
			return False
		n_tokens = self.header.n_tokens
		self.pops = self.rnd.random() < 0.5
		self.state = cut(self.base, n_tokens - self.rnd.randint(0, min(n_tokens, 9)))
		return True

	def new_header(self):
		n_tokens = self.state.image.n_tokens
		return self.header._replace(n_tokens=n_tokens, n_base=n_tokens,
			n_marks=self.n_marks())

	def committed(self, update):
		if not self.pops:
			return
		self.take_out(update, self.seq.entries.difference(names(self.new_header())))
		early = None if self.rules("reuse-after-swap") else self.freeze_count
		self.seq.entries.difference_update(self.leaving)
		for entry in self.leaving.values():
			self.thread.leave(self.seq, entry, early)
			yield


class SetMode(Part):
	"""Begins or ends a journal that is empty. Blocks of the old one are not continued."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok or self.base.points or self.base.marks:
			return False
		modes = [m for m in self.world.scenario.modes if m != self.header.mode]
		if not modes:
			return False
		self.state = self.base._replace(mode=self.rnd.choice(modes))
		if self.rules("mode-starts-fresh"):
			self.take_out(update, [n for n in self.seq.entries if n[0] == JOURNAL])
		return True

	def new_header(self):
		return self.header._replace(mode=self.state.mode)

	def committed(self, update):
		self.seq.mode, self.seq.future = self.state.mode, None
		yield from super().committed(update)


class Mark(Part):
	"""Pushes a mark, or releases the newest. Marks above the committed number are nobody's
	yet."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		n_marks = self.header.n_marks
		mark = (update, self.header.n_tokens, self.header.end)
		if n_marks and (n_marks == MAX_MARKS or self.rnd.random() < 0.4):
			self.state = self.base._replace(marks=self.base.marks[:-1])
			return True
		if not self.rules("marks-above-count") and n_marks:
			n_marks -= 1
		self.agent.store(self.place.marks[n_marks], mark)
		yield
		self.state = self.base._replace(marks=self.base.marks[:n_marks] + (mark, ))
		return True

	def new_header(self):
		return self.header._replace(n_marks=len(self.state.marks))


def freezing(place, header, frozen_slots, frozen_rows, rules):
	"""The stores that raise a sequence's marks, but for the count."""
	stores = []
	for group in header.layers:
		if group == 0 or rules("frozen-each-group"):
			stores.append((place.frozen_slots[group], max(frozen_slots[group],
				n_slots(group, header.n_base))))
	if header.mode == REPLAY and rules("frozen-rows"):
		stores.append((place.frozen_rows, max(frozen_rows, header.end)))
	return stores


class Fork(Part):
	"""Forks or snapshots a sequence inside the session, into a free place of this writer or of
	another thread's.

	Another thread's place is not under this word: it is filled from outside, and its owner
	makes it live by an update of its own. Until then it is a gift on the way.
	"""
	bumps = True

	def __init__(self, thread, seq, target, other=None):
		super().__init__(thread, seq)
		self.target, self.other = target, other
		self.shared = {}
		self.key = thread.world.key()

	def opened(self, update):
		"""Freezes the parent as the core would, and counts the references before anyone may
		see them."""
		self.read_marks()
		yield
		if self.rules("fork-raises-marks"):
			for cell, value in freezing(self.place, self.header, self.frozen_slots,
				self.frozen_rows, self.rules):
				self.agent.store(cell, value)
			self.agent.store(self.place.freeze_count, self.freeze_count + 1)
		self.child = share(self.header)._replace(key=self.key)
		for name in names(self.child):
			number, count = current(self.agent, self.place.entry(name), update)
			self.thread.refer(number)
			self.shared[name] = (number,
				0 if self.rules("fork-entries-zero") else count + 1)
			yield

	def fill(self, update):
		for cell, value in self.target.fresh(self.child, self.rules):
			self.agent.store(cell, value)
		for name, entry in self.shared.items():
			pair = self.target.entry(name)
			if self.other:
				fill_outside(self.agent, pair, entry, self.rules)
			else:
				fill(self.agent, pair, update, entry, self.rules)
			yield
		if not self.other:
			fill(self.agent, self.target.header, update, self.child, self.rules)
			yield

	def cancelled(self):
		for entry in self.shared.values():
			self.thread.unrefer(entry[0])
		self.thread.return_place(self.target, self.other)

	def committed(self, update):
		self.thread.forked(self)
		yield

	def states(self):
		self.state = shared(self.base)._replace(key=self.key)
		return {} if self.other else {self.target.index: self.state}


class Adopt(Part):
	"""Makes live what another thread's Fork has put into a place of this writer."""
	def __init__(self, thread, gift):
		super().__init__(thread, gift)
		self.state, self.base = gift.state, None

	def begin(self, update):
		return True
		yield

	def new_header(self):
		return self.seq.gift

	def cancelled(self):
		self.thread.gifts.append(self.seq)

	def committed(self, update):
		self.thread.sequences.append(self.seq)
		return
		yield


class Drop(Part):
	"""The sequence is gone with the swap; its blocks leave after it, its place once the core
	knows."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		self.state = None
		return True

	def new_header(self):
		return None

	def committed(self, update):
		self.take_out(update, self.seq.entries)
		self.thread.sequences.remove(self.seq)
		for entry in self.leaving.values():
			self.thread.leave(self.seq, entry)
			yield
		self.thread.dropped(self.seq)
