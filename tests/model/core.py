"""The core: holds, freezes, rolls back, buries dead sessions, answers requests, and starts again
after its own death.

Promise: one life is one generator; killing it at any yield and starting another with the same
catalogue must go unnoticed. It touches a live writer's headers only under a hold, and takes from a
client's table only blocks that were granted to that session or are pinned for it.
"""

from parts import can_cut, freezing
from serve import Requests, Step, Target
from shared import (BLOCK_SLOTS, GENERATIONS, HELD, IDLE, JOURNAL, NONE, OPEN, UNDO, WANTED, Record,
	Vector, clear_above, current, fill, n_slots, names, share)
from truth import back_to, cut, kept, must, shared
from world import Saved

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
		blocks = {}
		for name in names(header):
			entry = current(self.agent, place.entry(name), update)
			must(entry is not None, "%r: place %d: no entry %s at update %d",
				place.writer, place.index, name, update)
			blocks[name] = entry[0]
		allowed = self.allowed(place.writer.session)
		must(
			set(blocks.values()) <= allowed, "%r: place %d names blocks %s of others",
			place.writer, place.index, sorted(set(blocks.values()) - allowed))
		marks = tuple(self.agent.load(cell) for cell in place.marks[:header.n_marks])
		return update, header, blocks, marks

	def allowed(self, session):
		"""Blocks that a session's tables may name: granted to it, or pinned by it."""
		blocks = {b for b, s in self.catalogue.grants.items() if s == session.number}
		for number, pinned in self.catalogue.pins.values():
			if number == session.number:
				blocks.update(pinned)
		return blocks

	def saved(self, place, what):
		"""What `read` found, beside the truth; checked here, for the reader of a snapshot
		sees what the core saw."""
		update, header, blocks, marks = what
		state = self.world.history[place.writer].get(update, {}).get(place.index)
		must(state is not None, "%r: place %d: update %d was never true", place.writer,
			place.index, update)
		must(marks == state.marks, "%r: place %d: read %s %s, truth %s", place.writer,
			place.index, header, marks, state)
		self.world.check(blocks, header, state, "what the core took at update %d" % update,
			self.agent)
		return Saved(blocks, header, state)

	def shared(self, saved):
		"""As a snapshot has it: without marks, and without what its owner writes in
		place."""
		if not self.rules("undo-rows-private"):
			return saved._replace(header=saved.header._replace(n_marks=0),
				state=saved.state._replace(marks=()))
		header = share(saved.header)
		blocks = {name: saved.blocks[name] for name in names(header)}
		return Saved(blocks, header, shared(saved.state))

	# ---- commands

	def freeze(self, place, update, header):
		"""True: the marks were raised. A sequence frozen at this update already is as it
		was."""
		if self.frozen_at.get(place) == (update, header.key):
			return False
		if self.rules("marks-raised"):
			slots = [self.agent.load(cell) for cell in place.frozen_slots]
			rows = self.agent.load(place.frozen_rows)
			count = self.agent.load(place.freeze_count)
			for cell, value in freezing(place, header, slots, rows, self.rules):
				self.agent.store(cell, value)
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
		return what and (what[0], self.shared(self.saved(target.place, what)))

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
			update, header, _, _ = what
			step = self.less(place, update, header)
			if step is None:
				yield from self.let_go(writers)
				return
			steps.append(step)
			updates[place.writer] = update
			yield
		self.world.check_same_instant(updates)
		self.decide(steps)
		self.world.count("operator rollbacks")
		yield
		yield from self.carry_out()

	def less(self, place, update, header):
		"""What a sequence is rolled back to; None: a header alone cannot do it."""
		old = self.world.truth[place.writer][place.index]
		if header.mode == UNDO or (header.mode == NONE and not can_cut(header)):
			return None
		if header.mode == NONE:
			keep = max(0, header.n_tokens
				- self.rnd.randint(0, self.rnd.choice((1, 2, 6))))
			state = cut(old, keep)
			header = header._replace(n_tokens=keep, n_base=keep)
		elif old.points:
			state = back_to(old, self.rnd.randrange(len(old.points)))
			header = header._replace(n_tokens=state.image.n_tokens,
				end=state.points[-1].end, now=state.image.version,
				kept=kept(self.rules, state.points, state.image))
		else:
			return None
		return Step(place, update, header._replace(n_marks=len(state.marks)), state)

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

	def put_rows_back(self, place, effective, update):
		"""Rows behind the end that counts: old bytes, newest row first. A slot's block is
		the one that counts, a row's block the one of the update in flight."""
		header = current(self.agent, place.header, effective)
		if header is None or header.mode != UNDO or not self.rules("rows-put-back"):
			return
		rows = list(range(header.end, self.agent.load(place.rows_end)))
		if self.rules("rows-newest-first"):
			rows.reverse()
		allowed = self.allowed(place.writer.session)
		for i in rows:
			entry = current(self.agent, place.entry((JOURNAL, i // BLOCK_SLOTS)),
				update if self.rules("journal-at-next") else effective)
			row = entry and self.agent.load(
				self.world.blocks[entry[0]].slots[i % BLOCK_SLOTS])
			must(entry and entry[0] in allowed and isinstance(row, (Vector, Record)),
				"%r: row %d was counted but not written", place.writer, i)
			if isinstance(row, Vector):
				self.put_back(place, header, effective, row)
			yield

	def put_back(self, place, header, effective, row):
		group, slot, old, _ = row
		if slot >= n_slots(group, header.n_base) and self.rules("rows-below-length"):
			return
		entry = current(self.agent, place.entry((group, slot // BLOCK_SLOTS)), effective)
		if entry is None or (entry[1] != self.agent.load(place.freeze_count)
			and self.rules("rows-only-own")):
			return
		self.world.check_not_seen(entry[0], slot % BLOCK_SLOTS)
		self.agent.store(self.world.blocks[entry[0]].slots[slot % BLOCK_SLOTS], old)
		self.world.count("rows put back")

	def settle(self, writer):
		"""What a dead writer left: the update that it decided is finished, any other never
		happened."""
		seen = self.agent.load(writer.word, acquire=True)
		update, decided = seen[2], self.agent.load(writer.decided)
		is_decided = self.rules("decided-finished") and (decided == update + 1
			or not self.rules("decided-by-number") and decided != 0)
		if seen[0] in (OPEN, WANTED) or not self.rules("open-put-back"):
			for place in writer.places:
				yield from self.put_rows_back(place, update + is_decided,
					update + 1)
		if is_decided:
			self.world.count("decided updates finished")
			self.swap(writer, seen, IDLE, bump=1, step=1)
			self.world.commit_finished(writer, update + 1)
			return
		early = not self.rules("idle-before-cleared")
		if not early:
			self.swap(writer, seen, IDLE, bump=1)
			yield
		for place in writer.places:
			for copies in place.pairs():
				if self.rules("stamps-cleared"):
					clear_above(self.agent, copies, update)
			yield
		if early:
			self.swap(writer, seen, IDLE, bump=1)

	def bury(self, session):
		"""The process is gone (pidfd): its words are settled, its named sequences parked,
		the rest is free."""
		for thread in session.threads:
			self.agent.learn(thread.agent.clock)
		self.agent.fence_release()
		yield
		for writer in session.writers:
			yield from self.settle(writer)
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
			self.world.check(*saved, "removed %s" % name)
			catalogue.record(self.agent, lambda: table.pop(name))
