# SPDX-License-Identifier: MIT
"""What lies in shared memory, and how both sides read and write it: commit word, places, two
stamped copies.

Promise: the only functions that touch headers and table entries. Stamp 0 means "no copy", so zeroed
memory is empty; updates count from 1. A copy is a stamp and a body, stored in any order: a copy is
believed only under a commit word whose update covers its stamp, and then both have landed.
"""

from memory import Cell

IDLE, OPEN, WANTED, HELD = "idle", "open", "wanted", "held"
GENERATIONS = 4  # few, so that wrapping is tried
BLOCK_SLOTS = 4
MAX_BLOCKS = 8  # a table's size
MAX_SLOTS = BLOCK_SLOTS * MAX_BLOCKS
MAX_MARKS = 3
MAX_ROWS = 12
N_PLACES = 4
POISON = "poison"

# Each rule can be broken by name (`Rules`): the simulation must then find an error, or the rule is
# not tested.
RULES = {
	"marks-raised": "a freeze raises frozen_slots and the freeze count",
	"count-raised": "a freeze raises the freeze count, not frozen_slots alone",
	"copy-below-frozen": "an entry with an older count takes no write below frozen_slots",
	"in-place-needs-count":
	"an in-place write copies a block with an older count, above frozen_slots too",
	"marks-read-again": "in-place writes read the freeze marks again once the word is open",
	"append-above-length":
	"what is written with the word idle lies at or above the committed length",
	"foreign-untouched": "a block with freeze count 0 is never written",
	"fork-entries-zero": "a fork's entries carry freeze count 0",
	"fork-raises-marks": "a local fork raises its parent's marks as a freeze does",
	"references-counted": "a block shared by local forks leaves with its last reference",
	"own-blocks-counted":
	"a fork through the core counts the blocks in it that are granted to its session",
	"reuse-checked": "a block that left a table is reused only if no freeze has covered it",
	"reuse-after-swap": "the freeze count for that check is read after the committing swap",
	"leaves-after-swap": "a block goes back to the core only after the swap that took it out",
	"released-once":
	"a block that waits for its way back to the core is not put on the list again",
	"stamps-cleared": "stamps of an abandoned update are cleared before the next",
	"older-copy-filled": "an update fills the copy that does not count",
	"update-goes-up": "a rollback is an update of its own; the number never goes down",
	"begin-checked":
	"a writer looks at the word again between reading its header and writing by it",
	"moved-refused": "an update that began at another number than the word's is refused",
	"acts-under-hold": "the core acts only under a hold",
	"all-held-at-once": "a command over several writers holds all before it acts",
	"decided-completed": "a restarted core completes what its log says was decided",
	"decided-once":
	"a restarted core redoes a decided command only where the word is still held",
	"held-let-go": "a restarted core lets go of what was held",
	"answers-kept": "a command sent again is answered from the log",
	"rows-put-back": "the core puts a dead writer's rows back",
	"rows-newest-first": "rows are put back newest first",
	"rows-only-own": "rows are put back only into blocks that were written in place",
	"rows-end-with-bound": "the end of the rows is the header's bound before the word opens",
	"parked-pinned": "a parked sequence pins its blocks",
	"pin-outlives-parent": "a pin lasts until the last local fork of its sequence is gone",
	"header-names-sequence":
	"a header names its sequence: its place may be used again before the core knows",
	"place-cleared": "a place filled from outside its writer's word has no other stamps",
	"marks-above-count": "a mark is written above the committed number of marks",
	"marks-dropped": "a rollback drops the marks it passes",
	"commit-releases": "order: the committing swap is a release",
	"open-acquires": "order: the opening swap is an acquire",
	"hold-acquires": "order: the swap or load that finds the hold is an acquire",
	"letting-go-releases": "order: the swap that lets go is a release",
	"begin-acquires": "order: the load of the word that begins an update is an acquire",
	"open-fence": "order: release fence between the opening swap and what is written under it",
	"reader-acquires": "order: a reader's first load of the word is an acquire",
	"reader-fence": "order: acquire fence before a reader's second load of the word",
	"row-release": "order: a row is complete before it is counted",
	"row-fence": "order: a row is counted before its slot is overwritten",
	"log-releases": "order: a log record comes after all that it tells of",
}


class Rules:
	"""All rules, less those broken on purpose."""
	def __init__(self, broken=()):
		unknown = set(broken) - set(RULES)
		if unknown:
			raise ValueError("no such rule: %s" % ", ".join(sorted(unknown)))
		self.broken = frozenset(broken)

	def __call__(self, name):
		assert name in RULES, name
		return name not in self.broken


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


class Header(tuple):
	"""Body of a header copy: which sequence, how long, how many marks, journal bound. None: the
	place is free."""
	__slots__ = ()

	def __new__(cls, key, n_slots, n_marks=0, n_rows=0):
		return super().__new__(cls, (key, n_slots, n_marks, n_rows))

	key = property(lambda self: self[0])
	n_slots = property(lambda self: self[1])
	n_marks = property(lambda self: self[2])
	n_rows = property(lambda self: self[3])

	def but(self, **changes):
		return Header(*(changes.get(name, value)
			for name, value in zip(("key", "n_slots", "n_marks", "n_rows"), self)))


class Place:
	"""A sequence's place in a control segment. Table entries are (block number, freeze
	count)."""
	def __init__(self, writer, index):
		self.writer, self.index = writer, index
		self.header = pair()
		self.table = [pair() for _ in range(MAX_BLOCKS)]
		self.frozen_slots, self.freeze_count = Cell(0), Cell(1)
		self.marks = [Cell(None) for _ in range(MAX_MARKS)]
		self.rows = [Cell(None) for _ in range(MAX_ROWS)]
		self.rows_end = Cell(0)

	def pairs(self):
		return [self.header] + self.table


class Writer:
	"""A commit word and its places."""
	def __init__(self, session, index):
		self.session, self.index = session, index
		self.word = Cell((IDLE, 0, 1))
		self.places = [Place(self, i) for i in range(N_PLACES)]

	def __repr__(self):
		return "writer %d.%d" % (self.session.number, self.index)


def n_blocks(n_slots):
	return -(-n_slots // BLOCK_SLOTS)


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
