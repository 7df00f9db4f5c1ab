"""Updates of a sequence with an undo journal: slots are overwritten in place, and put back.

What every class here does with a slot below the length: if its block is the writer's own, the slot
is written while the word is open; if it is frozen, the block is copied, with all that this update
has put into it, and the copy is written at once. A freeze may come between this and the opening of
the word: then the word goes back, and more blocks are copied.
"""

from shared import BLOCK_SLOTS, JOURNAL, RING, UNDO, Vector, fill, n_slots
from steps import Back, Forward, Journaled
from truth import Image, laid_over


class InPlace(Journaled):
	"""`later`: (group, slot, value) to be written, in this order. `in_place`: (block, slot,
	value) of them that wait for the open word."""
	mode = UNDO

	def settle(self, update):
		"""Decides where each slot is written. False: the reserve is empty."""
		self.in_place = []
		for group, slot, value in self.later:
			name = (group, slot // BLOCK_SLOTS)
			if name not in self.pending:
				entry = self.entry(name, update)
				if self.may_overwrite(entry[1], group, slot):
					self.in_place.append((entry[0], group, slot, value))
					continue
				n_filled = self.top[group] if self.rules(
					"copy-takes-appended") else self.slots(group)
				if self.replace(name, entry,
					n_filled - name[1] * BLOCK_SLOTS) is None:
					return False
				yield
			self.write(self.pending[name][0], slot, value)
			yield
		return True

	def may_overwrite(self, count, group, slot):
		if self.is_own(count):
			return True
		return (not self.rules("in-place-needs-count") and count != 0
			and slot >= self.frozen_slots[group])

	def is_ready(self):
		"""Has no freeze come since the marks were read?"""
		if not self.rules("marks-read-again"):
			return True
		if self.load(self.place.freeze_count) == self.freeze_count:
			return True
		self.world.count("backed out")
		return False

	def again(self, update):
		"""More is frozen than was. What was copied before is nobody else's still."""
		self.read_marks()
		yield
		if self.rnd.random() < 0.5:
			for name, (number, _) in self.pending.items():
				self.pending[name] = (number, self.freeze_count)
		ok = yield from self.settle(update)
		return ok

	def raise_rows_end(self, update):
		"""From here on the rows say what is to be put back."""
		if self.rules("journal-entry-first"):
			for name, entry in self.pending.items():
				if name[0] == JOURNAL:
					fill(self.agent, self.place.entry(name), update, entry,
						self.rules)
					yield
		if self.rules("rows-end-first"):
			self.agent.store(self.place.rows_end, self.end,
				release=self.rules("row-release"))
		if self.rules("row-fence"):
			self.agent.fence_release()
		yield

	def overwrite(self):
		for number, _, slot, value in self.in_place:
			self.write(number, slot, value)
			yield

	def opened(self, update):
		yield from self.raise_rows_end(update)
		yield from self.overwrite()
		if not self.rules("rows-end-first"):
			self.agent.store(self.place.rows_end, self.end)

	def undo(self, update):
		"""Abandoned: the writer puts its own rows back before it lets the word go."""
		for number, group, slot, _ in reversed(self.in_place):
			self.write(number, slot, self.base.image.base[group][slot])
			yield
		if self.rules("rows-end-with-bound"):
			is_ordered = self.rules("abandon-orders")
			self.agent.store(self.place.rows_end, self.header.end, release=is_ordered)
			if is_ordered:
				self.agent.fence_release()
			yield


class Scatter(InPlace):
	"""A step: new tokens, slots of any tokens written again, also in a ring past its bound."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		self.later, self.rows, self.known = [], [], {}
		for group, slot in self.plan():
			value = self.world.token()
			ok = yield from self.put(group, slot, value, update)
			if not ok:
				return False
			self.known[group, slot] = value
		image = yield from self.maybe_planes(update, self.base.image)
		if image is None or not self.make(image):
			return False
		ok = yield from self.write_rows(self.rows, update)
		if not ok:
			return False
		ok = yield from self.settle(update)
		self.drop_outside(update)
		return ok

	def put(self, group, slot, value, update):
		"""A new slot is written at once, an old one later and with a row. A new slot that
		is written twice has a row too."""
		if slot >= self.slots(group):
			if (group, slot) in self.known:
				old = self.known[group, slot]
				self.rows.append(Vector(group, slot, old, value))
			ok = yield from self.append(group, slot, value, update)
			return ok
		number = self.block_of((group, slot // BLOCK_SLOTS), update)
		old = self.known.get((group, slot))
		if old is None:
			old = self.load(self.world.blocks[number].slots[slot % BLOCK_SLOTS])
		self.rows.append(Vector(group, slot, old, value))
		self.later.append((group, slot, value))
		if group == RING and not self.rules("ring-by-rows"):
			self.write(number, slot, value)
		return True

	def make(self, image):
		"""The state after it, with as many of the oldest steps forgotten as the windows
		ask for. False: it does not fit."""
		writes = [key + (value, ) for key, value in self.known.items()]
		slots = laid_over(self.base.image.base, writes, self.n_tokens)
		image = Image(self.n_tokens, slots, slots, image.version, image.planes)
		self.rows, points = self.step(self.rows, image)
		n_old = len(points) - 1
		i = self.rnd.randrange(n_old) if self.rnd.random() < 0.1 else 0
		while not self.fits(points[i:]):
			i += 1
			if i == n_old:
				return False
		self.first = points[i].end - 1
		self.state = self.base._replace(image=image, points=points[i:])
		return True


class UndoBack(InPlace, Back):
	"""Back to a point. Once decided it is finished, whoever dies."""
	decides = True

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok or not self.choose():
			return False
		n_tokens = self.state.image.n_tokens
		self.top = [n_slots(group, n_tokens) for group in self.header.layers]
		rows = yield from self.read_rows(self.end, self.header.end, update)
		if self.rules("back-newest-first"):
			rows.reverse()
		self.later = [row[:3] for row in rows
			if isinstance(row, Vector) and row.slot < self.top[row.group]]
		ok = yield from self.settle(update)
		self.drop_outside(update, self.pops)
		return ok

	def opened(self, update):
		if not self.rules("rows-end-kept"):
			self.agent.store(self.place.rows_end, self.end)
			yield

	def finish(self, update):
		yield from self.overwrite()

	def committed(self, update):
		"""The end of the rows is lowered now, or at last before the word opens again."""
		if self.rules("rows-end-lowered"):
			self.seq.rows_end = self.end
			if self.rnd.random() < 0.5:
				self.thread.lower_rows_ends()
			yield
		yield from super().committed(update)


class UndoForward(InPlace, Forward):
	"""Steps that went back are applied again, by the new bytes in their rows. Those that
	brought tokens are not."""
	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		points = []
		for point in self.known_future():
			if point.image.n_tokens != self.header.n_tokens:
				break
			points.append(point)
		if not self.choose(tuple(points)):
			return False
		rows = yield from self.read_rows(self.header.end, self.end, update)
		self.later = [(row.group, row.slot, row.new) for row in rows
			if isinstance(row, Vector)]
		ok = yield from self.settle(update)
		return ok


class Forget(Journaled):
	"""The oldest steps are forgotten, or all: the window of rows begins later."""
	mode = UNDO

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok or not self.base.points:
			return False
		points, self.end = self.base.points, self.header.end
		i = self.rnd.randint(0, len(points))
		self.first = points[i].end - 1 if i < len(points) else self.end
		marks = self.base.marks
		if not any(mark[2] >= self.first for mark in marks):
			marks = ()
		self.state = self.base._replace(points=points[i:], marks=marks)
		self.drop_outside(update)
		return True

	def future(self):
		known = self.known_future()
		return (self.end, known) if known and self.state.points else None
