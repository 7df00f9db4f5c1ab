# SPDX-License-Identifier: MIT
"""What an update may consist of, one class each.

An update takes its parts through the same stages: `begin` with the word idle (False: cannot),
`opened` under the open word, `fill` (the copies that do not count), then `committed` after the
swap, or `cancelled` when it was refused, or `undo` and `cancelled` when it was abandoned under the
open word. Stages are generators; each yield is a point at which others run or the process dies.
`state` is the truth that the part makes.
"""

from shared import (BLOCK_SLOTS, MAX_MARKS, MAX_ROWS, MAX_SLOTS, Header, current, fill,
	fill_outside, n_blocks)
from world import State, must


class Part:
	bumps = False  # the generation
	place = property(lambda self: self.seq.place)

	def __init__(self, thread, seq):
		self.thread, self.seq = thread, seq
		self.agent, self.rules = thread.agent, thread.world.rules
		self.rnd = thread.world.rnd
		self.pending = {}  # table index -> (block, freeze count)
		self.leaving = []  # entries that the update takes out of the table
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
		self.base = self.thread.world.history[self.thread.writer].get(update,
			{}).get(self.place.index)
		if self.header is None or self.base is None or self.header.key != self.seq.key:
			return False
		must(self.header.n_slots == len(self.base.tokens),
			"%r: begins update %d at %d slots, truth %d", self.thread.writer, update,
			self.header.n_slots, len(self.base.tokens))
		return True

	def read_marks(self):
		self.frozen_slots = self.load(self.place.frozen_slots)
		self.freeze_count = self.load(self.place.freeze_count)

	def is_own(self, count):
		"""Nobody else has seen any slot of the block."""
		return count == self.freeze_count or (count == 0
			and not self.rules("foreign-untouched"))

	def takes_append(self, entry, slot):
		_, count = entry
		if self.rules("append-above-length") and slot < self.header.n_slots:
			return False
		if self.is_own(count):
			return True
		return count != 0 and (slot >= self.frozen_slots
			or not self.rules("copy-below-frozen"))

	def replace(self, index, entry, n_filled):
		"""A block of the reserve takes the entry's place, with what is filled copied; None:
		the reserve is empty."""
		number = self.thread.take(self.seq)
		if number is None:
			return None
		blocks = self.thread.world.blocks
		if entry is not None:
			for i in range(min(BLOCK_SLOTS, max(0, n_filled))):
				self.agent.store(blocks[number].slots[i],
					self.load(blocks[entry[0]].slots[i]))
			self.leaving.append(entry)
		self.pending[index] = (number, self.freeze_count)
		return number

	def write(self, number, slot, token):
		self.agent.store(self.thread.world.blocks[number].slots[slot % BLOCK_SLOTS], token)

	def begin(self, update):
		return self.read(update)

	def opened(self, update):
		return
		yield

	def new_header(self):
		return self.header

	def fill(self, update):
		for index, entry in self.pending.items():
			fill(self.agent, self.place.table[index], update, entry, self.rules)
			yield
		fill(self.agent, self.place.header, update, self.new_header(), self.rules)
		yield

	def undo(self, update):
		return
		yield

	def cancelled(self):
		for number, _ in self.pending.values():
			self.thread.give_back(self.seq, number)

	def committed(self, update):
		if self.pending:
			self.seq.n_entries = max(self.seq.n_entries, max(self.pending) + 1)
		for entry in self.leaving:
			self.thread.leave(self.seq, entry)
			yield

	def states(self):
		return {self.place.index: self.state}


class Append(Part):
	"""Says less (`keep`), more, or both. Below the committed length only copies are written."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		length = self.header.n_slots
		keep = length
		if self.rnd.random() < 0.15 and length:
			keep -= self.rnd.randint(1, min(length, 5))
			self.bumps = True
		tokens = [self.thread.world.token() for _ in range(self.rnd.randint(1, 3))]
		if keep + len(tokens) > MAX_SLOTS:
			return False
		for slot, token in enumerate(tokens, keep):
			number = self.block_for(slot, keep, update)
			if number is None:
				return False
			yield
			self.write(number, slot, token)
			yield
		kept = self.thread.world.rolled_back(self.base, keep)
		self.state = State(self.seq.key, kept.tokens + tuple(tokens), kept.marks)
		self.n_marks = self.thread.n_marks_up_to(self.place, self.header, keep)
		return True

	def block_for(self, slot, keep, update):
		index = slot // BLOCK_SLOTS
		if index in self.pending:
			return self.pending[index][0]
		entry = None
		if index < self.seq.n_entries:
			entry = current(self.agent, self.place.table[index], update)
		if entry is not None and self.takes_append(entry, slot):
			return entry[0]
		return self.replace(index, entry, keep - index * BLOCK_SLOTS)

	def new_header(self):
		return self.header.but(n_slots=len(self.state.tokens), n_marks=self.n_marks)


class Rollback(Part):
	"""Says less. The blocks above stay in the table as a reserve, or leave it."""
	bumps = True

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		keep = self.header.n_slots - self.rnd.randint(0, min(self.header.n_slots, 9))
		self.pops = self.rnd.random() < 0.5
		self.state = self.thread.world.rolled_back(self.base, keep)
		self.n_marks = self.thread.n_marks_up_to(self.place, self.header, keep)
		return True

	def new_header(self):
		return self.header.but(n_slots=len(self.state.tokens), n_marks=self.n_marks)

	def committed(self, update):
		if not self.pops:
			return
		keep = n_blocks(len(self.state.tokens))
		old = [
			current(self.agent, self.place.table[i], update)
			for i in range(keep, self.seq.n_entries)
		]
		self.seq.n_entries = min(self.seq.n_entries, keep)
		early = None if self.rules("reuse-after-swap") else self.freeze_count
		for entry in old:
			self.thread.leave(self.seq, entry, early)
			yield


class InPlace(Part):
	"""Overwrites slots below the length: the old bytes go to rows first, and the word is open
	all the while."""
	bumps = False

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok or not self.header.n_slots:
			return False
		n_slots = self.rnd.randint(1, 3)
		if self.header.n_rows + n_slots > MAX_ROWS:
			return False
		self.slots = [self.rnd.randrange(self.header.n_slots) for _ in range(n_slots)]
		self.n_rows = self.header.n_rows
		self.written = []
		return True

	def opened(self, update):
		if self.rules("marks-read-again"):
			self.read_marks()
		tokens = list(self.base.tokens)
		row_by_row = self.rnd.random() < 0.5
		todo = []
		for slot in self.slots:
			number = self.block_for(slot, update)
			yield
			if number is None:
				continue
			todo.append((number, slot, self.thread.world.token()))
			if row_by_row:
				yield from self.rows(todo)
				yield from self.overwrite(todo, tokens)
				todo = []
		yield from self.rows(todo)
		yield from self.overwrite(todo, tokens)
		self.state = State(self.seq.key, tuple(tokens), self.base.marks)

	def block_for(self, slot, update):
		index = slot // BLOCK_SLOTS
		if index in self.pending:
			return self.pending[index][0]
		entry = current(self.agent, self.place.table[index], update)
		if self.is_own(entry[1]):
			return entry[0]
		if not self.rules(
			"in-place-needs-count") and entry[1] and slot >= self.frozen_slots:
			return entry[0]
		return self.replace(index, entry, self.header.n_slots - index * BLOCK_SLOTS)

	def rows(self, todo):
		"""A row is whole, then counted, then its slot may be overwritten."""
		before = self.n_rows
		for number, slot, _ in todo:
			old = self.load(self.thread.world.blocks[number].slots[slot % BLOCK_SLOTS])
			self.agent.store(self.place.rows[self.n_rows], (slot, old))
			self.written.append((number, slot, old))
			self.n_rows += 1
			yield
		if self.n_rows > before:
			self.agent.store(self.place.rows_end, self.n_rows,
				release=self.rules("row-release"))
			if self.rules("row-fence"):
				self.agent.fence_release()
			yield

	def overwrite(self, todo, tokens):
		for number, slot, token in todo:
			self.write(number, slot, token)
			tokens[slot] = token
			yield

	def new_header(self):
		return self.header.but(n_rows=self.n_rows)

	def undo(self, update):
		"""Abandoned: the writer puts its own rows back before it lets the word go."""
		for number, slot, old in reversed(self.written):
			self.write(number, slot, old)
			yield
		if self.rules("rows-end-with-bound"):
			self.agent.store(self.place.rows_end, self.header.n_rows)
			yield


class DropRows(Part):
	"""The journal is cut: its bound in the header first, the end of its rows after the swap."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		self.state = self.base
		return True

	def new_header(self):
		return self.header.but(n_rows=0)

	def committed(self, update):
		self.agent.store(self.place.rows_end, 0)
		yield


class Mark(Part):
	"""Pushes a mark, or releases the newest. Marks above the committed number are nobody's
	yet."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		n_marks, mark = self.header.n_marks, (update, self.header.n_slots)
		if n_marks and (n_marks == MAX_MARKS or self.rnd.random() < 0.4):
			self.n_marks = n_marks - 1
			self.state = self.base._replace(marks=self.base.marks[:-1])
			return True
		if not self.rules("marks-above-count") and n_marks:
			n_marks -= 1
		self.agent.store(self.place.marks[n_marks], mark)
		yield
		self.n_marks = n_marks + 1
		self.state = self.base._replace(marks=self.base.marks[:n_marks] + (mark, ))
		return True

	def new_header(self):
		return self.header.but(n_marks=self.n_marks)


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
		self.shared = []
		self.key = thread.world.key()

	def opened(self, update):
		"""Freezes the parent as the core would, and counts the references before anyone may
		see them."""
		self.read_marks()
		yield
		if self.rules("fork-raises-marks"):
			self.agent.store(self.place.frozen_slots,
				max(self.frozen_slots, self.header.n_slots))
			self.agent.store(self.place.freeze_count, self.freeze_count + 1)
		table = [
			current(self.agent, self.place.table[i], update)
			for i in range(n_blocks(self.header.n_slots))
		]
		for entry in table:
			self.thread.refer(entry[0])
			self.shared.append(entry)
			yield
		self.child = [(b, 0 if self.rules("fork-entries-zero") else c + 1)
			for b, c in table]

	def fill(self, update):
		target = self.target
		for cell, value in ((target.frozen_slots, 0), (target.freeze_count, 1),
			(target.rows_end, 0)):
			self.agent.store(cell, value)
		for i, entry in enumerate(self.child):
			if self.other:
				fill_outside(self.agent, target.table[i], entry, self.rules)
			else:
				fill(self.agent, target.table[i], update, entry, self.rules)
			yield
		if not self.other:
			fill(self.agent, target.header, update,
				Header(self.key, self.header.n_slots), self.rules)
			yield

	def cancelled(self):
		for entry in self.shared:
			self.thread.unrefer(entry[0])
		self.thread.return_place(self.target, self.other)

	def committed(self, update):
		self.thread.forked(self)
		yield

	def states(self):
		self.state = State(self.key, self.base.tokens, ())
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
		return Header(self.seq.key, len(self.state.tokens))

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
		old = [
			current(self.agent, self.place.table[i], update)
			for i in range(self.seq.n_entries)
		]
		self.thread.sequences.remove(self.seq)
		for entry in old:
			self.thread.leave(self.seq, entry)
			yield
		self.thread.dropped(self.seq)
