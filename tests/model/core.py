# SPDX-License-Identifier: MIT
"""The core: holds, freezes, rolls back, buries dead sessions, answers requests, and starts again
after its own death.

Promise: one life is one generator; killing it at any yield and starting another with the same
catalogue must go unnoticed. It touches a live writer's headers only under a hold, and takes from a
client's table only blocks that were granted to that session or are pinned for it.
"""

from shared import (BLOCK_SLOTS, GENERATIONS, HELD, IDLE, OPEN, WANTED, clear_above,
	current, fill, n_blocks)
from serve import Requests, Step, Target
from world import Saved, must

PATIENCE = 12  # looks at a wanted word before the command is answered busy


def in_order(writers):
	return sorted(set(writers), key=lambda writer: (writer.session.number, writer.index))


class Core(Requests):
	def __init__(self, world, agent):
		self.world, self.agent = world, agent
		self.rules, self.rnd, self.catalogue = world.rules, world.rnd, world.catalogue
		self.frozen_at = {}  # place -> (update, key) of its last freeze in this life
		self.is_acting = False
		self.steps = self.run()

	def run(self):
		self.is_acting = True
		self.agent.fence_release()
		yield from self.restart()
		while True:
			self.is_acting = False
			self.check_nothing_held()
			yield
			self.is_acting = True
			dead = [s for s in self.world.sessions if not s.is_alive]
			requests = [r for r in self.world.requests if r.session.is_alive]
			choice = self.rnd.random()
			if dead and choice < 0.5:
				yield from self.bury(self.rnd.choice(dead))
			elif requests and choice < 0.85:
				yield from self.serve(self.rnd.choice(requests))
			elif choice > 1 - self.world.scenario.operator:
				yield from self.operate()

	def check_nothing_held(self):
		for session in self.world.sessions:
			for writer in session.writers:
				if session.is_alive:
					must(writer.word.newest[0] in (IDLE, OPEN),
						"%r: nobody will let it go", writer)

	# ---- holds

	def swap(self, writer, seen, state, bump=0, step=0, release=True, acquire=True):
		_, generation, update = seen
		new = (state, (generation + bump) % GENERATIONS, update + step)
		return self.agent.swap(writer.word, seen, new, acquire=acquire, release=release)

	def hold(self, writer):
		"""True: held, and what the writer committed is seen. False: busy to the deadline,
		or dead."""
		acquire = self.rules("hold-acquires")
		patience = PATIENCE
		while True:
			seen = self.agent.load(writer.word, acquire)
			yield
			state = seen[0]
			if not writer.session.is_alive and state != HELD:
				return False
			if state == IDLE and self.swap(writer, seen, HELD, acquire=acquire):
				break
			if state == OPEN:
				self.swap(writer, seen, WANTED)
			if state == HELD:
				break
			if state == WANTED:
				patience -= 1
				if patience < 0 and self.swap(writer, seen, OPEN):
					self.world.count("busy")
					return False
			yield
		self.agent.fence_release()
		yield
		return True

	def hold_all(self, writers):
		held = []
		for writer in writers:
			ok = yield from self.hold(writer)
			if not ok:
				yield from self.let_go(held)
				return False
			held.append(writer)
		return True

	def let_go(self, writers, bumped=()):
		for writer in writers:
			seen = self.agent.load(writer.word)
			if seen[0] == HELD:
				release = self.rules("letting-go-releases")
				self.swap(writer, seen, IDLE, bump=writer in bumped,
					release=release)
			yield

	# ---- reading a client's tables

	def read(self, place, key):
		"""Header, table and marks at the committed update; None: the sequence is gone."""
		update = self.agent.load(place.writer.word)[2]
		header = current(self.agent, place.header, update)
		if header is None or (header.key != key and self.rules("header-names-sequence")):
			return None
		must(header.key == key, "%r: place %d is not sequence %d any more", place.writer,
			place.index, key)
		blocks = []
		for i in range(n_blocks(header.n_slots)):
			entry = current(self.agent, place.table[i], update)
			must(entry is not None, "%r: place %d: no entry %d at update %d",
				place.writer, place.index, i, update)
			blocks.append(entry[0])
		session = place.writer.session.number
		allowed = {b for b, s in self.catalogue.grants.items() if s == session}
		for number, pinned in self.catalogue.pins.values():
			if number == session:
				allowed.update(pinned)
		must(
			set(blocks) <= allowed, "%r: place %d names blocks %s of others",
			place.writer, place.index, sorted(set(blocks) - allowed))
		marks = tuple(self.agent.load(cell) for cell in place.marks[:header.n_marks])
		return update, header, blocks, marks

	def saved(self, place, what):
		"""What `read` found, beside the truth; checked here, for the reader of a snapshot
		sees what the core saw."""
		update, header, blocks, marks = what
		state = self.world.history[place.writer].get(update, {}).get(place.index)
		must(state is not None, "%r: place %d: update %d was never true", place.writer,
			place.index, update)
		must(header.n_slots == len(state.tokens) and marks == state.marks,
			"%r: place %d: read %s %s, truth %s", place.writer, place.index, header,
			marks, state)
		self.world.check_bytes(blocks, state.tokens,
			"what the core took at update %d" % update, self.agent)
		return Saved(blocks, header, state)

	# ---- commands

	def freeze(self, place, update, header):
		"""True: the marks were raised. A sequence frozen at this update already is as it
		was."""
		if self.frozen_at.get(place) == (update, header.key):
			return False
		if self.rules("marks-raised"):
			slots, count = self.agent.load(place.frozen_slots), self.agent.load(
				place.freeze_count)
			self.agent.store(place.frozen_slots, max(slots, header.n_slots))
			yield
			if self.rules("count-raised"):
				self.agent.store(place.freeze_count, count + 1)
			yield
		self.frozen_at[place] = (update, header.key)
		return True

	def take(self, target, bumped):
		"""Freezes one sequence under the hold and copies its table."""
		what = self.read(target.place, target.key)
		if what is None:
			return None
		raised = yield from self.freeze(target.place, what[0], what[1])
		if raised:
			bumped.add(target.place.writer)
		what = self.read(target.place, target.key)
		return what and (what[0], self.saved(target.place, what))

	def snapshot(self, targets, request=None):
		"""All or none: holds every writer, freezes and copies, one record, lets go."""
		writers = in_order(target.place.writer for target in targets)
		is_held, at_once = self.rules("acts-under-hold"), self.rules("all-held-at-once")
		bumped, taken, updates = set(), [], {}
		if is_held and at_once:
			ok = yield from self.hold_all(writers)
			if not ok:
				return self.answer(request, None)
		for target in targets:
			if is_held and not at_once:
				ok = yield from self.hold(target.place.writer)
				if not ok:
					return self.answer(request, None)
			result = yield from self.take(target, bumped)
			if is_held and not at_once:
				yield from self.let_go([target.place.writer], bumped)
			if result is None:
				break
			updates[target.place.writer] = result[0]
			taken.append(result[1])
		if len(taken) == len(targets):
			self.world.check_same_instant(updates)
			self.record_snapshots(taken, request)
		else:
			self.answer(request, None)
		yield
		if is_held:
			yield from self.let_go(writers, bumped)

	def record_snapshots(self, taken, request):
		def change():
			for saved in taken:
				self.catalogue.snapshots[self.catalogue.new_id()] = saved
			self.note_answer(request, True)

		self.catalogue.record(self.agent, change)
		self.world.count("snapshots")
		if len(taken) > 1:
			self.world.count("snapshots of many")
		self.reply(request)

	def rollback(self, targets):
		"""An operator's: decided in the log under all holds, then carried out, redone by
		the next life if need be."""
		writers = in_order(target.place.writer for target in targets)
		ok = yield from self.hold_all(writers)
		if not ok:
			return
		steps, updates = [], {}
		for place, key in targets:
			what = self.read(place, key)
			if what is None:
				yield from self.let_go(writers)
				return
			update, header, _, marks = what
			keep = max(0,
				header.n_slots - self.rnd.randint(0, self.rnd.choice((1, 2, 6))))
			kept_marks = sum(length <= keep for _, length in marks)
			old = self.world.truth[place.writer][place.index]
			step = Step(place, update, header.but(n_slots=keep, n_marks=kept_marks),
				self.world.rolled_back(old, keep))
			steps.append(step)
			updates[place.writer] = update
			yield
		self.world.check_same_instant(updates)
		self.decide(steps)
		self.world.count("operator rollbacks")
		yield
		yield from self.carry_out()

	def decide(self, steps, change=None):
		"""From this record on the command happens, whoever dies."""
		def both():
			self.catalogue.decided = steps
			if change:
				change()

		self.catalogue.record(self.agent, both)
		for step in steps:
			states = self.world.decided.setdefault(step.place.writer,
				(step.update + 1, {}))[1]
			states[step.place.index] = step.state

	def carry_out(self, again=False):
		"""An update of the core's own on each writer. Where a word is no longer held, it
		was done."""
		steps = self.catalogue.decided
		for writer in in_order(step.place.writer for step in steps):
			seen = self.agent.load(writer.word, acquire=True)
			mine = [s for s in steps if s.place.writer is writer]
			if again and not self.rules("decided-once") and seen[0] == IDLE:
				yield from self.hold(writer)
				seen = self.agent.load(writer.word, acquire=True)
			elif seen[0] != HELD or seen[2] != mine[0].update:
				continue
			for step in mine:
				fill(self.agent, step.place.header, seen[2], step.header,
					self.rules)
				yield
			if self.swap(writer, seen, IDLE, bump=1, step=1,
				release=self.rules("letting-go-releases")):
				self.world.commit_decided(writer, seen[2] + 1)
			yield

		def change():
			self.catalogue.decided = None

		self.catalogue.record(self.agent, change)

	# ---- death

	def restart(self):
		if self.catalogue.decided is not None:
			if self.rules("decided-completed"):
				yield from self.carry_out(again=True)
			else:
				self.catalogue.decided = None
		for session in list(self.world.sessions):
			for writer in session.writers:
				yield from self.release_word(writer)

	def release_word(self, writer):
		while True:
			seen = self.agent.load(writer.word, acquire=True)
			yield
			state = seen[0]
			if state == HELD and self.rules("held-let-go"):
				for place in writer.places:
					for copies in place.pairs():
						clear_above(self.agent, copies, seen[2])
					yield
				if self.swap(writer, seen, IDLE, bump=1):
					return
			elif state == WANTED:
				if self.swap(writer, seen, OPEN):
					return
			else:
				return

	def put_rows_back(self, place, update):
		"""The update that was being written in place never happened: old bytes, newest row
		first."""
		header = current(self.agent, place.header, update)
		if header is None or not self.rules("rows-put-back"):
			return
		rows = list(range(header.n_rows, self.agent.load(place.rows_end)))
		if self.rules("rows-newest-first"):
			rows.reverse()
		for i in rows:
			row = self.agent.load(place.rows[i])
			must(row is not None, "%r: row %d was counted but not written",
				place.writer, i)
			slot, old = row
			entry = current(self.agent, place.table[slot // BLOCK_SLOTS], update)
			if entry[1] == self.agent.load(
				place.freeze_count) or not self.rules("rows-only-own"):
				self.world.check_not_seen(entry[0], slot % BLOCK_SLOTS)
				block = self.world.blocks[entry[0]]
				self.agent.store(block.slots[slot % BLOCK_SLOTS], old)
				self.world.count("rows put back")
			yield

	def bury(self, session):
		"""The process is gone (pidfd): its words are settled, its named sequences parked,
		the rest is free."""
		for thread in session.threads:
			self.agent.learn(thread.agent.clock)
		self.agent.fence_release()
		yield
		for writer in session.writers:
			seen = self.agent.load(writer.word, acquire=True)
			if seen[0] in (OPEN, WANTED):
				for place in writer.places:
					yield from self.put_rows_back(place, seen[2])
			for place in writer.places:
				for copies in place.pairs():
					if self.rules("stamps-cleared"):
						clear_above(self.agent, copies, seen[2])
				yield
			self.swap(writer, seen, IDLE, bump=1)
			self.world.check_writer(writer)
			yield
		parked = {}
		for key, (number, place, is_named) in self.catalogue.sequences.items():
			if number == session.number and is_named:
				what = self.read(place, key)
				if what is not None:
					parked[key] = self.saved(place, what)
					yield
		self.record_death(session, parked)

	def record_death(self, session, parked):
		catalogue, number = self.catalogue, session.number

		def change():
			for table in (catalogue.sequences, catalogue.pins):
				for key in [k for k, v in table.items() if v[0] == number]:
					del table[key]
			for block in [b for b, s in catalogue.grants.items() if s == number]:
				del catalogue.grants[block]
			for key in [k for k in catalogue.answers if k[0] == number]:
				del catalogue.answers[key]
			catalogue.parked.update(parked)

		session.is_being_buried = True
		catalogue.record(self.agent, change)
		self.world.count("sessions buried")
		self.world.forget_session(session)

	# ---- operators

	def operate(self):
		catalogue = self.catalogue
		is_short = len(catalogue.free) < len(self.world.blocks) // 4
		choice = self.rnd.random()
		if choice < (0.5 if is_short else self.world.scenario.removes):
			return self.remove()
			yield
		live = [
			Target(place, key)
			for key, (_, place, _) in sorted(catalogue.sequences.items())
			if place.writer.session.is_alive
		]
		if not live:
			return
		targets = self.rnd.sample(live, min(len(live), self.rnd.choice((1, 1, 2, 3))))
		if choice < self.world.scenario.snapshots:
			yield from self.snapshot(targets)
		else:
			yield from self.rollback(targets)

	def remove(self):
		catalogue = self.catalogue
		table = self.rnd.choice(
			(catalogue.snapshots, catalogue.snapshots, catalogue.parked))
		if table:
			name = self.rnd.choice(sorted(table))
			saved = table[name]
			self.world.check_bytes(saved.blocks, saved.state.tokens,
				"removed %s" % name)
			catalogue.record(self.agent, lambda: table.pop(name))
