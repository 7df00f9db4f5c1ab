"""What lies in shared memory, and how both sides read and write it: commit word, places, two
stamped copies.

Promise: the only functions that touch headers and table entries. Stamp 0 means "no copy", so zeroed
memory is empty; updates count from 1. A copy is a stamp and a body, stored in any order: a copy is
believed only under a commit word whose update covers its stamp, and then both have landed.

Blocks have names: (group, number). A group is a table of a place; number n is entry n % its size.
"""

from collections import namedtuple

from memory import Cell

IDLE, OPEN, WANTED, HELD = "idle", "open", "wanted", "held"
GENERATIONS = 4  # few, so that wrapping is tried
BLOCK_SLOTS = 4  # slots, rows, or parts of a version of the sequence planes
POISON = "poison"
MAX_MARKS = 3
N_PLACES = 4

# Groups: two kinds of layers, the journal, the versions of the sequence planes.
GLOBAL, RING, JOURNAL, STATES = range(4)
LAYERS = (GLOBAL, RING)
N_ENTRIES = (8, 2, 4, 3)  # small windows, so that they wrap
MAX_TOKENS = BLOCK_SLOTS * N_ENTRIES[GLOBAL]
RING_SLOTS = 6

NONE, UNDO, REPLAY = "none", "undo", "replay"  # journal modes


class Block:
	__slots__ = ("number", "slots")

	def __init__(self, number):
		self.number = number
		self.slots = [Cell(POISON) for _ in range(BLOCK_SLOTS)]


class Copy:
	__slots__ = ("stamp", "body")

	def __init__(self):
		self.stamp, self.body = Cell(0), Cell(None)


def pair():
	return (Copy(), Copy())


Header = namedtuple("Header", "key layers n_tokens n_base n_marks mode first end kept now",
	defaults=((GLOBAL, ), 0, 0, 0, NONE, 0, 0, 0, 0))
"""Body of a header copy (None: the place is free). Which sequence, its layer groups, tokens, those
of them that are in blocks, marks, journal rows [first, end), versions of the planes [kept, now]."""

# What a cell of a journal block holds.
Vector = namedtuple("Vector", "group slot old new")
Record = namedtuple("Record", "n_tokens version n_rows")


class Place:
	"""A sequence's place in a control segment. Table entries are (block number, freeze
	count)."""
	def __init__(self, writer, index):
		self.writer, self.index = writer, index
		self.header = pair()
		self.tables = {}  # made as needed: (group, index) -> pair
		self.frozen_slots, self.frozen_rows = [Cell(0) for _ in LAYERS], Cell(0)
		self.freeze_count = Cell(1)
		self.marks = [Cell(None) for _ in range(MAX_MARKS)]
		self.rows_end = Cell(0)

	def entry(self, name):
		group, number = name
		index = (group, number % N_ENTRIES[group])
		if index not in self.tables:
			self.tables[index] = pair()
		return self.tables[index]

	def pairs(self):
		return [self.header] + list(self.tables.values())

	def fresh(self, header, rules):
		"""Cells that lie outside the two copies, and what they are for a new tenant."""
		cells = [(cell, 0) for cell in self.frozen_slots]
		cells += [(self.frozen_rows, 0), (self.freeze_count, 1)]
		if rules("rows-end-installed"):
			cells.append((self.rows_end, header.end))
		return cells


class Writer:
	"""A commit word and its places. `decided`: the update that is to be finished if the writer
	dies in it."""
	def __init__(self, session, index):
		self.session, self.index = session, index
		self.word, self.decided = Cell((IDLE, 0, 1)), Cell(0)
		self.places = [Place(self, i) for i in range(N_PLACES)]

	def __repr__(self):
		return "writer %d.%d" % (self.session.number, self.index)


def n_blocks(n_slots):
	return -(-n_slots // BLOCK_SLOTS)


def n_slots(group, n_tokens):
	"""How many slots of a layer group hold something once so many tokens are in it."""
	return min(n_tokens, RING_SLOTS) if group == RING else n_tokens


def window(header, group):
	"""Which block numbers of a group a header names."""
	if group == JOURNAL:
		if header.first >= header.end:
			return range(0)
		return range(header.first // BLOCK_SLOTS, n_blocks(header.end))
	if group == STATES:
		return range(header.kept - 1, header.now) if header.now else range(0)
	if group not in header.layers:
		return range(0)
	return range(n_blocks(n_slots(group, header.n_base)))


def names(header):
	return [(group, number) for group in range(len(N_ENTRIES))
		for number in window(header, group)]


def share(header):
	"""What a snapshot or a fork keeps of a header."""
	header = header._replace(n_marks=0)
	if header.mode == REPLAY:
		return header
	return header._replace(first=header.end, kept=header.now)


def counting(agent, copies, update):
	"""Which of the two copies counts at this update: the newest that is not above it; None if
	neither."""
	stamps = [agent.load(copy.stamp) for copy in copies]
	best = None
	for i in (0, 1):
		if 0 < stamps[i] <= update and (best is None or stamps[i] > stamps[best]):
			best = i
	return best


def current(agent, copies, update):
	i = counting(agent, copies, update)
	return None if i is None else agent.load(copies[i].body)


def fill(agent, copies, update, body, rules):
	"""Writes the copy that does not count, stamped with the next update; again within one
	update is the same copy."""
	i = counting(agent, copies, update)
	if not rules("older-copy-filled"):
		i = 1 if i is None else 1 - i
	copy = copies[0 if i else 1]
	stores = [(copy.body, body), (copy.stamp, update + 1)]
	if agent.rnd.random() < 0.5:
		stores.reverse()
	for cell, value in stores:
		agent.store(cell, value)


def fill_outside(agent, copies, body, rules):
	"""Writes a pair of a place that no word covers yet: true from the first update on, and
	alone."""
	agent.store(copies[0].body, body)
	agent.store(copies[0].stamp, 1)
	if rules("place-cleared"):
		agent.store(copies[1].stamp, 0)


def clear_above(agent, copies, update):
	for copy in copies:
		if agent.load(copy.stamp) > update:
			agent.store(copy.stamp, 0)


def newest_counting(copies, update):
	"""The observer's view of a pair: what counts once all stores have landed."""
	best = None
	for copy in copies:
		if 0 < copy.stamp.newest <= update and (best is None
			or copy.stamp.newest > best.stamp.newest):
			best = copy
	return None if best is None else best.body.newest
