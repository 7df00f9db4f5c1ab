"""What a sequence is, outside the machine, and whether memory says so.

Promise: an image is all that a reader could see; a state is an image and what one can go back to.
`Check` reads the memory that a header and a table name and compares every slot, row and version
with the state: the base, what the journal lays over it, and each step that it can go back to.
"""

from collections import defaultdict, namedtuple

from shared import (BLOCK_SLOTS, JOURNAL, REPLAY, STATES, UNDO, Record, Vector, n_slots)

# base: slots of each layer group as blocks hold them; seen: with replay rows laid over.
Image = namedtuple("Image", "n_tokens base seen version planes")
# A step that the journal can go back to: bound behind its record, and what it wrote (replay).
Point = namedtuple("Point", "end image writes")
State = namedtuple("State", "key mode image points marks")  # mark: (update, tokens, row)


class Violation(Exception):
	pass


def must(condition, sentence, *args):
	if not condition:
		raise Violation(sentence % args)


def created(layers, mode):
	nothing = tuple(() for _ in layers)
	return State(None, mode, Image(0, nothing, nothing, 0, None), (), ())


def laid_over(base, writes, n_tokens):
	"""The slots of each group once rows are laid over a base."""
	seen = [list(slots) + [None] * (n_slots(group, n_tokens) - len(slots))
		for group, slots in enumerate(base)]
	for group, slot, value in writes:
		seen[group][slot] = value
	return tuple(tuple(slots) for slots in seen)


def cut(state, keep):
	"""Rolled back by length, without a journal."""
	slots = tuple(slots[:keep] for slots in state.image.base)
	return state._replace(image=state.image._replace(n_tokens=keep, base=slots, seen=slots),
		marks=tuple(m for m in state.marks if m[1] <= keep))


def back_to(state, i):
	"""Rolled back to a point of the journal."""
	point = state.points[i]
	return state._replace(image=point.image, points=state.points[:i + 1],
		marks=tuple(m for m in state.marks if m[2] <= point.end))


def shared(state):
	"""What a snapshot or a fork has of it."""
	return state._replace(marks=(), points=state.points if state.mode == REPLAY else ())


def folded(value):
	"""What a block holds of a row's value: not the same, for it is quantised."""
	return -value


def kept(rules, points, image):
	"""The oldest version of the sequence planes that a header keeps: what its steps need."""
	if not image.version:
		return 0
	oldest = points[0].image.version if points and rules("versions-kept") else image.version
	return max(1, oldest)


def matches(header, state):
	image = state.image
	return (header.mode == state.mode and header.n_tokens == image.n_tokens
		and header.now == image.version and header.n_marks == len(state.marks)
		and all(n_slots(group, header.n_base) == len(slots)
			for group, slots in enumerate(image.base))
		and (not state.points or header.end == state.points[-1].end))


class Check:
	"""One look at all that a header and a table name."""
	def __init__(self, world, blocks, header, state, what, agent=None):
		self.world, self.blocks, self.header, self.state = world, blocks, header, state
		self.what, self.agent = what, agent

	def value(self, group, i):
		"""Slot, row or part of a version, where its block has it."""
		name = (group, i // BLOCK_SLOTS)
		must(name in self.blocks, "%s: no block %s", self.what, name)
		cell = self.world.blocks[self.blocks[name]].slots[i % BLOCK_SLOTS]
		must(self.agent is None or self.agent.knows(cell.stores[-1]),
			"%s: %s of group %d is not ordered before it", self.what, i, group)
		return cell.newest

	def run(self):
		header, state = self.header, self.state
		must(matches(header, state), "%s: header is %s, should be %s", self.what, header,
			state)
		slots = [[self.value(group, i) for i in range(len(expected))]
			for group, expected in enumerate(state.image.base)]
		self.compare(slots, state.image.base, "slot")
		self.planes(state.image)
		if state.points:
			self.journal(slots)

	def compare(self, got, expected, what):
		for group, slots in enumerate(expected):
			for i, value in enumerate(slots):
				must(got[group][i] == value,
					"%s: %s %d of group %d is %s, should be %s", self.what,
					what, i, group, got[group][i], value)

	def planes(self, image):
		if image.version:
			first = (image.version - 1) * BLOCK_SLOTS
			got = tuple(self.value(STATES, first + i) for i in range(BLOCK_SLOTS))
			must(got == image.planes, "%s: version %d is %s, should be %s", self.what,
				image.version, got, image.planes)

	def journal(self, slots):
		points, first = self.state.points, self.header.first
		must(first == points[0].end - 1, "%s: journal begins at %d, should at %d",
			self.what, first, points[0].end - 1)
		rows = {row: self.value(JOURNAL, row) for row in range(first, self.header.end)}
		for point in points:
			record = rows[point.end - 1]
			expected = (point.image.n_tokens, point.image.version)
			must(isinstance(record, Record) and record[:2] == expected,
				"%s: row %d is %s, should be the record of %s", self.what,
				point.end - 1, record, point.image)
			self.planes(point.image)
		if self.state.mode == UNDO:
			return self.backwards(slots, rows)
		end = first + 1
		slots = [defaultdict(lambda: None, enumerate(group)) for group in slots]
		for point in points:
			for row in range(end, point.end - 1):
				must(isinstance(rows[row], Vector), "%s: row %d is %s", self.what,
					row, rows[row])
				slots[rows[row].group][rows[row].slot] = rows[row].new
			end = point.end
			self.compare(slots, point.image.seen, "with rows up to %d slot" % end)

	def backwards(self, slots, rows):
		"""Undo: each step must be reachable from what is there."""
		points = self.state.points
		for newer, older in zip(points[::-1], points[-2::-1]):
			for row in range(newer.end - 2, older.end - 1, -1):
				must(isinstance(rows[row], Vector), "%s: row %d is %s", self.what,
					row, rows[row])
				group, slot, old, _ = rows[row]
				if slot < len(slots[group]):
					slots[group][slot] = old
			self.compare(slots, older.image.base, "back at %d slot" % older.end)
