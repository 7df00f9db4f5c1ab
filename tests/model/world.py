"""The observer: what must be true, kept apart from the machine, and the catalogue that the core
writes.

Promise: `truth` is what each writer has committed, set at the instant of the swap; every check
compares memory as it is with the truth as it was and raises Violation with one sentence. Nothing
here is part of the protocol but the catalogue, whose records are atomic and outlive the core.
"""

from collections import namedtuple

from memory import N_AGENTS, Agent
from shared import (BLOCK_SLOTS, HELD, IDLE, JOURNAL, POISON, STATES, Block, n_slots, names,
	newest_counting)
from truth import Check, must

Saved = namedtuple("Saved", "blocks header state")  # a snapshot or a parked sequence
HISTORY = 8


class Catalogue:
	"""The core's log. A record is a function applied at once; blocks that nobody holds
	afterwards are free."""
	def __init__(self, world):
		self.world = world
		self.grants = {}  # block -> session number
		self.snapshots = {}  # id -> Saved
		self.parked = {}  # key -> Saved
		self.pins = {}  # id -> (session number, blocks)
		self.sequences = {}  # key -> (session number, place, is_named)
		self.answers = {}  # (session number, request id) -> answer
		self.decided = None  # a rollback that is being carried out
		self.n_ids = 0
		self.free = set(world.blocks)

	def new_id(self):
		self.n_ids += 1
		return self.n_ids

	def pinned(self):
		used = set()
		for saved in self.snapshots.values():
			used.update(self.held(saved))
		if self.world.rules("parked-pinned"):
			for saved in self.parked.values():
				used.update(self.held(saved))
		for _, blocks in self.pins.values():
			used.update(blocks)
		return used

	def held(self, saved):
		if self.world.rules("snapshot-holds-rows"):
			return saved.blocks.values()
		return [b for (group, _), b in saved.blocks.items() if group != JOURNAL]

	def record(self, agent, change):
		"""True once written: all that came before has landed, nothing that comes after
		has."""
		if self.world.rules("log-releases"):
			agent.barrier()
		change()
		used = self.pinned().union(self.grants)
		must(not used & self.free, "blocks %s are free and in use",
			sorted(used & self.free))
		freed = set(self.world.blocks) - used - self.free
		self.free |= freed
		for number in freed:
			self.world.check_unused(number)
			for cell in self.world.blocks[number].slots:
				agent.store(cell, POISON)
		if freed:
			agent.barrier()


class World:
	def __init__(self, rnd, rules, scenario):
		self.rnd, self.rules, self.scenario = rnd, rules, scenario
		self.blocks = {i: Block(i) for i in range(1, scenario.blocks + 1)}
		self.catalogue = Catalogue(self)
		self.sessions = []
		self.requests = []
		self.truth, self.history, self.since = {}, {}, {}
		self.decided = {}  # writer -> (update, states): a command that the log has
		self.finishing = {}  # writer -> (update, bases, states): `decided` in its segment
		self.n_steps = self.n_tokens = self.n_keys = 0
		self.counts = {}
		self.free_numbers = list(range(1, N_AGENTS))
		self.past = {}

	def count(self, what):
		self.counts[what] = self.counts.get(what, 0) + 1

	def token(self):
		self.n_tokens += 1
		return self.n_tokens

	def key(self):
		self.n_keys += 1
		return self.n_keys

	def agent(self):
		"""A new life under a number; it begins with what the one before it knew."""
		number = self.free_numbers.pop(0)
		return Agent(number, self.rnd, self.past.get(number), self.scenario.staleness)

	def retire(self, agent):
		self.past[agent.number] = list(agent.clock)
		self.free_numbers.append(agent.number)

	# ---- the truth

	def enter(self, writer):
		self.truth[writer] = {}
		self.history[writer] = {1: {}}
		self.since[writer] = {1: self.n_steps}

	def commit(self, writer, update, bases, states):
		"""The writer's word has just been swapped to this update, which made `states` (by
		place) out of `bases`."""
		must(writer not in self.decided, "%r: update %d overtook a decided command", writer,
			update)
		for index, base in bases.items():
			must(self.truth[writer].get(index) == base,
				"%r: update %d was built on what was gone", writer, update)
		self.settle(writer, update, states)

	def commit_decided(self, writer, update):
		expected = self.decided.pop(writer, None)
		must(expected is not None and expected[0] == update,
			"%r: a command was carried out again at %d", writer, update)
		self.settle(writer, update, expected[1])

	def commit_finished(self, writer, update):
		"""The core has finished what a dead writer had decided."""
		expected, bases, states = self.finishing.get(writer, (None, None, None))
		must(expected == update, "%r: update %d was finished, decided was %s", writer,
			update, expected)
		self.commit(writer, update, bases, states)

	def settle(self, writer, update, states):
		now = dict(self.truth[writer])
		for index, state in states.items():
			if state is None:
				now.pop(index, None)
			else:
				now[index] = state
		self.truth[writer] = now
		self.history[writer][update] = now
		self.since[writer][update] = self.n_steps
		self.history[writer].pop(update - HISTORY, None)

	def forget_session(self, session):
		self.sessions.remove(session)
		for thread in session.threads:
			self.retire(thread.agent)
		for writer in session.writers:
			for table in (self.truth, self.history, self.since, self.decided,
				self.finishing):
				table.pop(writer, None)

	# ---- checks

	def check_same_instant(self, updates):
		"""There was an instant at which each writer was at the update that the command
		saw."""
		begin = max(self.since[w].get(u, 0) for w, u in updates.items())
		end = min(self.since[w].get(u + 1, self.n_steps + 1) for w, u in updates.items())
		must(begin < end, "one command saw its writers at different times: %s", updates)

	def check(self, blocks, header, state, what, agent=None):
		Check(self, blocks, header, state, what, agent).run()

	def table(self, place, update, which):
		"""Name -> block of what the observer finds in a table."""
		entries = {name: newest_counting(place.entry(name), update) for name in which}
		must(None not in entries.values(), "%r: place %d: table has a hole at update %d",
			place.writer, place.index, update)
		return {name: entry[0] for name, entry in entries.items()}

	def check_writer(self, writer):
		state, _, update = writer.word.newest
		truth = self.truth[writer]
		for place in writer.places:
			header = newest_counting(place.header, update)
			expected = truth.get(place.index)
			where = "%r: place %d at update %d" % (writer, place.index, update)
			if expected is None:
				must(header is None, "%s: should be free, is %s", where, header)
				continue
			must(header is not None and header.key == expected.key,
				"%s: header is %s, should be of %s", where, header, expected.key)
			marks = tuple(cell.newest for cell in place.marks[:header.n_marks])
			must(marks == expected.marks, "%s: marks are %s, should be %s", where,
				marks, expected.marks)
			table = self.table(place, update, names(header))
			if state in (IDLE, HELD):
				self.check(table, header, expected, where)

	def check_saved(self):
		for kind in ("snapshots", "parked"):
			for name, saved in getattr(self.catalogue, kind).items():
				self.check(*saved, "%s %s" % (kind, name))

	def check_not_seen(self, number, slot):
		"""What a snapshot shows is not written, not even with the same bytes."""
		for saved in self.catalogue.snapshots.values():
			for name, block in saved.blocks.items():
				must(block != number or not self.is_seen(saved.header, name, slot),
					"slot %d of block %d belongs to a snapshot and was written",
					slot, number)

	def is_seen(self, header, name, slot):
		group, i = name[0], name[1] * BLOCK_SLOTS + slot
		if group == JOURNAL:
			return header.first <= i < header.end
		return group == STATES or i < n_slots(group, header.n_base)

	def check_unused(self, number):
		"""No committed table of a session that is not yet buried names a block that was
		just freed."""
		for session in self.sessions:
			if session.is_being_buried:
				continue
			for writer in session.writers:
				update = writer.word.newest[2]
				for index in self.truth[writer]:
					place = writer.places[index]
					header = newest_counting(place.header, update)
					table = header and self.table(place, update, names(header))
					must(not table or number not in table.values(),
						"%r: block %d was freed under place %d", writer,
						number, index)

	def check_accounts(self, session):
		"""With all threads between two calls: each granted block is in one list, or in
		tables as often as counted."""
		uses = {}
		for thread in session.threads:
			update = thread.writer.word.newest[2]
			for seq in thread.sequences:
				for block in self.table(seq.place, update, seq.entries).values():
					uses[block] = uses.get(block, 0) + 1
			for gift in thread.gifts:
				for block in self.table(gift.place, 1, gift.entries).values():
					uses[block] = uses.get(block, 0) + 1
		lists = list(session.pool) + list(session.release)
		for thread in session.threads:
			for seq in thread.sequences:
				lists += seq.spares
		must(
			len(set(lists)) == len(lists), "session %d: a block is in two lists: %s",
			session.number, sorted(lists))
		tabled = {b: n for b, n in uses.items() if b in session.grants}
		spare = set(lists) - set(session.release)
		must(not spare & set(tabled), "session %d: a block is spare and in a table",
			session.number)
		lost = session.grants - set(lists) - set(tabled)
		must(not lost, "session %d: lost blocks %s", session.number, sorted(lost))
		counted = {b: n for b, n in session.references.items() if n}
		must(counted == tabled, "session %d: counts %s, tables %s", session.number, counted,
			tabled)
		granted = {b for b, s in self.catalogue.grants.items() if s == session.number}
		must(granted == session.grants, "session %d: granted %s, has %s", session.number,
			granted, session.grants)
		pinned = set()
		for number, blocks in self.catalogue.pins.values():
			if number == session.number:
				pinned.update(blocks)
		must(
			set(uses) <= granted | pinned, "session %d: holds blocks of nobody: %s",
			session.number, sorted(set(uses) - granted - pinned))

	def check_now(self):
		for session in self.sessions:
			for writer in session.writers:
				self.check_writer(writer)
