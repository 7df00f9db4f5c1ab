"""What updates with a journal have in common: rows, versions of the sequence planes, going back and
forward, forgetting.

Rows are in blocks of the journal group, row r in block r // BLOCK_SLOTS. They are written with the
word idle, behind the committed end. A step ends with a record; the first row of a journal is the
record of the state below it.
"""

from parts import Part
from shared import (BLOCK_SLOTS, JOURNAL, LAYERS, MAX_TOKENS, N_ENTRIES, REPLAY, RING, RING_SLOTS,
	STATES, Record, n_blocks, names)
from truth import Point, kept, must


class Journaled(Part):
	"""`state` makes the header: a part says what is true after it."""
	first = None  # row that the journal begins with afterwards

	def new_header(self):
		image, points = self.state.image, self.state.points
		first = self.header.first if self.first is None else self.first
		base = self.header.n_base if self.mode == REPLAY else image.n_tokens
		return self.header._replace(n_tokens=image.n_tokens, n_base=base,
			n_marks=self.n_marks(), first=first if points else self.end, end=self.end,
			kept=kept(self.rules, points, image), now=image.version)

	# ---- rows

	def takes_row(self, entry, row):
		"""Snapshots hold the blocks of a replay journal; those of an undo journal are
		everybody else's no more than a fork's base is."""
		_, count = entry
		if self.is_own(count):
			return True
		return count != 0 and (self.mode != REPLAY or row >= self.frozen_rows
			or not self.rules("rows-below-frozen"))

	def write_rows(self, rows, update):
		"""Behind the committed end. False: the reserve is empty. What was rolled back is
		gone with the first row, whatever becomes of this update."""
		if self.rules("future-ends"):
			self.seq.future = None
		for row, body in enumerate(rows, self.header.end):
			name = (JOURNAL, row // BLOCK_SLOTS)
			if name not in self.pending:
				entry = self.entry(name, update)
				if entry is None or not self.takes_row(entry, row):
					if self.replace(name, entry,
						self.header.end - name[1] * BLOCK_SLOTS) is None:
						return False
					entry = self.pending[name]
			else:
				entry = self.pending[name]
			self.write(entry[0], row, body)
			yield
		self.end = self.header.end + len(rows)
		return True

	def read_rows(self, first, end, update):
		"""Rows that are there already, as the table names their blocks."""
		rows = []
		for row in range(first, end):
			entry = self.entry((JOURNAL, row // BLOCK_SLOTS), update)
			must(entry is not None, "row %d is to be read and has no block", row)
			cell = self.world.blocks[entry[0]].slots[row % BLOCK_SLOTS]
			rows.append(self.load(cell))
			yield
		return rows

	def step(self, vectors, image, writes=()):
		"""The rows of a step, with the record below it if the journal is empty, and the
		points after it."""
		rows, points = list(vectors), self.base.points
		rows.append(Record(image.n_tokens, image.version, len(vectors)))
		end = self.header.end + len(rows)
		if not points:
			below = self.base.image
			rows.insert(0, Record(below.n_tokens, below.version, 0))
			end += 1
			points = (Point(self.header.end + 1, below, ()), )
		return rows, points + (Point(end, image, writes), )

	def fits(self, points):
		"""Do the windows hold what these points need?"""
		first, end, image = points[0].end - 1, points[-1].end, points[-1].image
		n_versions = image.version - kept(self.rules, points, image) + 1
		n_rows = n_blocks(end) - first // BLOCK_SLOTS
		return n_versions <= N_ENTRIES[STATES] and (n_rows <= N_ENTRIES[JOURNAL]
			or not self.rules("window-fits"))

	# ---- what a step is made of

	def plan(self):
		"""Slots of new tokens, and slots to be written again, also of the new tokens."""
		n_tokens = self.header.n_tokens
		n_new = min(self.rnd.randint(0, 2), MAX_TOKENS - n_tokens)
		tokens = [(group, t % RING_SLOTS if group == RING else t)
			for t in range(n_tokens, n_tokens + n_new) for group in self.header.layers]
		self.n_tokens = n_tokens + n_new
		again = []
		for _ in range(self.rnd.randint(not n_new, 3)):
			group = self.rnd.choice(self.header.layers)
			n = self.n_tokens if group != RING else min(self.n_tokens, RING_SLOTS)
			if n:
				again.append((group, self.rnd.randrange(n)))
		return tokens + again

	def planes(self, update):
		"""A version is written whole, into a block of its own."""
		version, name = self.header.now + 1, (STATES, self.header.now)
		entry = self.entry(name, update)
		if entry is not None and not self.rules("version-fresh"):
			number = entry[0]
		else:
			number = self.replace(name, entry, 0)
		if number is None:
			return None
		values = tuple(self.world.token() for _ in range(BLOCK_SLOTS))
		for i, value in enumerate(values):
			self.write(number, i, value)
			yield
		return version, values

	def maybe_planes(self, update, image):
		"""The image with new planes, now and then; None: the reserve is empty."""
		if self.rnd.random() > self.world.scenario.planes:
			return image
		made = yield from self.planes(update)
		return made and image._replace(version=made[0], planes=made[1])

	def drop_outside(self, update, all_of_it=False):
		"""Blocks below the windows leave the table; what is above may come back, or goes
		too."""
		header = self.new_header()
		below = {JOURNAL: header.first // BLOCK_SLOTS, STATES: header.kept - 1}
		if all_of_it:
			return self.take_out(update, self.seq.entries.difference(names(header)))
		self.take_out(update, [n for n in self.seq.entries
			if n[0] not in LAYERS and n[1] < below[n[0]]])

	def committed(self, update):
		self.seq.future = self.future()
		yield from super().committed(update)

	def future(self):
		"""(end, points behind it) that can be applied again."""
		return None

	def known_future(self):
		"""Points behind the committed end whose rows and versions are there still."""
		future = self.seq.future
		if future is None or future[0] != self.header.end:
			return ()
		return future[1]


class Back(Journaled):
	"""Going back to a point: chooses it, and what becomes of the blocks behind it."""
	bumps = True

	def choose(self):
		points = self.base.points
		if len(points) < 2:
			return False
		i = self.rnd.randrange(len(points) - 1)
		self.state = self.base._replace(image=points[i].image, points=points[:i + 1],
			marks=tuple(m for m in self.base.marks if m[2] <= points[i].end))
		self.end, self.undone = points[i].end, points[i + 1:]
		self.pops = self.rnd.random() < 0.4
		return True

	def future(self):
		return None if self.pops else (self.end, self.undone + self.known_future())


class Forward(Journaled):
	"""Going forward again over rows that are there already."""

	def choose(self, points):
		if not points:
			return False
		points = points[:self.rnd.randint(1, len(points))]
		self.end = points[-1].end
		self.state = self.base._replace(image=points[-1].image,
			points=self.base.points + points)
		return self.fits(self.state.points)

	def future(self):
		left = self.known_future()[len(self.state.points) - len(self.base.points):]
		return (self.end, left) if left else None
