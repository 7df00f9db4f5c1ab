"""The client's side: a session, its threads, and the update that they drive by the commit protocol.

Promise: a thread does what the library does, in the library's order, and keeps private what the
library keeps in its own process. What it knows of shared memory it loads each time. A request to
the core is made only with the word idle.
"""

from memory import join
from parts import Adopt, Append, Drop, Fork, Mark, Rollback, SetMode
from replay import Fold, Lay, ReplayBack, ReplayForward
from shared import GENERATIONS, HELD, IDLE, NONE, OPEN, WANTED, Writer, clear_above, names
from undo import Forget, Scatter, UndoBack, UndoForward

MAX_SPINS, MAX_BACK_OUTS = 60, 4


class Request:
	"""One call to the core. Sent again until answered; `answer` comes with what the core
	knew."""
	def __init__(self, thread, number, kind, args):
		self.session, self.thread, self.number = thread.session, thread, number
		self.kind, self.args = kind, args
		thread.agent.barrier()
		self.clock = list(thread.agent.clock)
		self.is_answered, self.answer, self.answer_clock = False, None, None


class Sequence:
	"""What a thread knows of one of its sequences, beside what is in its place. `entries`: what
	the table has, more than the header names; `future`: what went back and is there still."""
	def __init__(self, key, place, header, pin=None, is_known=False):
		self.key, self.place, self.mode = key, place, header.mode
		self.entries, self.future = set(names(header)), None
		self.pin, self.is_known = pin, is_known
		self.spares = []
		self.state = self.gift = None
		self.rows_end = None  # to be stored before the word opens


class Session:
	def __init__(self, world, number, n_threads):
		self.world, self.number = world, number
		self.is_alive, self.is_being_buried = True, False
		self.grants, self.references, self.pins = set(), {}, {}
		self.pool, self.release, self.n_requests = [], [], 0
		self.clock = None
		self.writers = [Writer(self, i) for i in range(n_threads)]
		for writer in self.writers:
			world.enter(writer)
		self.threads = [
			Thread(world, self, writer, world.agent()) for writer in self.writers
		]

	def is_quiet(self):
		return all(not thread.is_busy for thread in self.threads)

	def kill(self):
		self.is_alive = False
		for thread in self.threads:
			thread.agent.die()


class Thread:
	def __init__(self, world, session, writer, agent):
		self.world, self.session, self.writer, self.agent = world, session, writer, agent
		self.rnd, self.rules = world.rnd, world.rules
		self.sequences, self.gifts, self.free_places = [], [], list(writer.places)
		self.offers, self.untold = [], []
		self.is_busy = False
		self.steps = self.run()

	def run(self):
		ops, weights = zip(*self.world.scenario.ops.items())
		while True:
			self.is_busy = False
			if self.session.is_quiet() and self.rnd.random() < 0.5:
				self.world.check_accounts(self.session)
			yield
			self.is_busy = True
			op = self.rnd.choices(ops, weights)[0]
			if not self.sequences and not self.gifts:
				op = self.rnd.choice(("create", "fork_of_snapshot", "take_over"))
			yield from getattr(self, op)()

	# ---- blocks, counted in the process

	def sync(self):
		"""The session's own atomics (acquire and release): what one thread counted the
		others know."""
		self.agent.learn(self.session.clock)
		self.session.clock = list(join(self.session.clock, self.agent.clock))
		self.agent.fence_release()

	def take(self, seq):
		self.sync()
		stack = seq.spares or self.session.pool
		if not stack:
			return None
		number = stack.pop()
		self.session.references[number] = 1
		return number

	def give_back(self, seq, number):
		"""Never in a committed table."""
		self.session.references[number] = 0
		seq.spares.append(number)

	def refer(self, number):
		self.sync()
		if number in self.session.grants:
			self.session.references[number] += 1

	def unrefer(self, number):
		self.sync()
		if number not in self.session.grants:
			return False
		left = self.session.references[number] = self.session.references[number] - 1
		return left == 0

	def leave(self, seq, entry, early_count=None):
		"""A block has left the table by the swap that is done: to the spares, or on its way
		back to the core."""
		number, count = entry
		is_last = self.unrefer(number)
		if number not in self.session.grants:
			return
		if not is_last:
			if self.rules("references-counted"):
				return
			self.session.references[number] = 0
		now = early_count if early_count is not None else self.agent.load(
			seq.place.freeze_count)
		if count == now or not self.rules("reuse-checked"):
			self.world.count("reused")
			(seq.spares if seq in self.sequences else self.session.pool).append(number)
		elif number not in self.session.release or not self.rules("released-once"):
			self.world.count("released")
			self.session.release.append(number)

	# ---- places

	def return_place(self, place, other):
		(other.offers if other else self.free_places).append(place)

	def forked(self, part):
		child = Sequence(part.key, part.target, part.child, self.seq_pin(part.seq))
		child.state, child.gift = part.state, part.child
		self.world.count("local forks")
		if part.other:
			self.sync()
			part.other.gifts.append(child)
		else:
			self.sequences.append(child)

	def seq_pin(self, seq):
		if seq.pin is not None:
			self.session.pins[seq.pin] += 1
		return seq.pin

	def dropped(self, seq):
		"""The place is free at once; the core is told when there is time."""
		self.session.pool += seq.spares
		seq.spares = []
		self.free_places.append(seq.place)
		pins = self.session.pins
		if seq.pin is not None:
			pins[seq.pin] -= 1
			if not pins[seq.pin] or (seq.is_known
				and not self.rules("pin-outlives-parent")):
				self.untold.append(("unpin", seq.pin))
		if seq.is_known:
			self.untold.append(("forget", seq.key))

	def tell(self):
		while self.untold:
			yield from self.call(*self.untold.pop())

	# ---- the update

	def update(self, parts):
		"""One update of the commit protocol. True: committed."""
		agent, word = self.agent, self.writer.word
		state, _, update = agent.load(word, acquire=self.rules("begin-acquires"))
		yield
		ready = []
		for part in parts:
			ok = yield from part.begin(update)
			ready.append(part)
			if not ok:
				self.cancel(ready + parts[len(ready):])
				return False
		if not self.rules("leaves-after-swap"):
			for part in parts:
				part.seq.entries.difference_update(part.leaving)
				for entry in part.leaving.values():
					self.leave(part.seq, entry)
				part.leaving = {}
			yield from self.give_up_blocks()
		update = yield from self.open_ready(parts, update)
		if update is None:
			self.cancel(parts)
			return False
		if self.rules("open-fence"):
			agent.fence_release()
		for part in parts:
			yield from part.opened(update)
		decides = any(part.decides for part in parts)
		if decides and not self.rules("decided-after-fill"):
			self.decide(parts, update)
			yield
		for part in parts:
			yield from part.fill(update)
		if not decides and self.rnd.random() < self.world.scenario.abandons:
			yield from self.abandon(parts, update)
			return False
		if decides:
			yield from self.finish(parts, update)
		yield from self.close(parts, update)
		for part in parts:
			self.world.count(type(part).__name__)
			yield from part.committed(update + 1)
		return True

	def open_ready(self, parts, update):
		"""Opens the word; back to idle, and again, as long as a freeze came before it."""
		for _ in range(MAX_BACK_OUTS):
			update = yield from self.open(update)
			if update is None:
				return None
			asked = parts if self.rules("marks-of-all") else parts[:1]
			if all([part.is_ready() for part in asked]):
				return update
			yield
			yield from self.let_go(update)
			for part in parts:
				ok = yield from part.again(update)
				if not ok:
					return None
		return None

	def lower_rows_ends(self):
		for seq in self.sequences:
			if seq.rows_end is not None:
				self.agent.store(seq.place.rows_end, seq.rows_end)
				seq.rows_end = None

	def decide(self, parts, update):
		"""From here on the update is finished, by whoever comes next. What is put back
		afterwards lands after it."""
		if self.rules("decided-stored"):
			self.agent.store(self.writer.decided, update + 1,
				release=self.rules("decided-releases"))
		if self.rules("decided-fence"):
			self.agent.fence_release()
		bases, states = self.outcome(parts)
		self.world.finishing[self.writer] = (update + 1, bases, states)

	def finish(self, parts, update):
		is_first = self.rules("decided-first")
		if is_first and self.rules("decided-after-fill"):
			self.decide(parts, update)
			yield
		for part in parts:
			yield from part.finish(update)
		if not is_first:
			self.decide(parts, update)
			yield

	def let_go(self, update, bump=0):
		"""Open to idle, or wanted to held, with nothing committed."""
		agent, word = self.agent, self.writer.word
		while True:
			seen = agent.load(word)
			yield
			state, generation, _ = seen
			if agent.swap(word, seen, (HELD if state == WANTED else IDLE,
				(generation + bump) % GENERATIONS, update)):
				break

	@staticmethod
	def outcome(parts):
		bases, states = {}, {}
		for part in parts:
			bases[part.place.index] = part.base
			states.update(part.states())
		return bases, states

	def cancel(self, parts):
		self.world.count("refused")
		for part in parts:
			part.cancelled()

	def open(self, update):
		"""Idle to open, if the update number is still the one it began with; waits for a
		hold, but not for ever."""
		agent, word = self.agent, self.writer.word
		acquire = self.rules("open-acquires")
		self.lower_rows_ends()
		for _ in range(MAX_SPINS):
			seen = agent.load(word, acquire)
			yield
			state, generation, now = seen
			if now != update:
				if self.rules("moved-refused"):
					return None
				update = now
			if state == IDLE and agent.swap(word, seen,
				(OPEN, generation, now), acquire=acquire):
				yield
				return now
		return None

	def close(self, parts, update):
		agent, word = self.agent, self.writer.word
		bases, states = self.outcome(parts)
		bump = any(part.bumps for part in parts)
		back = not self.rules("update-goes-up") and update > 1 and all(
			isinstance(p, Rollback) for p in parts)
		while True:
			seen = agent.load(word)
			yield
			state, generation, _ = seen
			after = HELD if state == WANTED else IDLE
			new = (after, (generation + bump) % GENERATIONS,
				update - 1 if back else update + 1)
			if agent.swap(word, seen, new, release=self.rules("commit-releases")):
				break
		self.world.count("commits")
		if back:
			states = self.world.history[self.writer].get(update - 1, states)
			self.world.settle(self.writer, update - 1, states)
		else:
			self.world.commit(self.writer, update + 1, bases, states)
		yield

	def abandon(self, parts, update):
		"""An error under the open word: bytes and stamps are put right before anyone else
		comes."""
		agent = self.agent
		for part in reversed(parts):
			yield from part.undo(update)
		if self.rules("stamps-cleared"):
			for place in self.writer.places:
				for copies in place.pairs():
					clear_above(agent, copies, update)
				yield
		yield from self.let_go(update, bump=self.rules("abandon-bumps"))
		self.world.count("abandoned")
		self.cancel(parts)

	# ---- calls to the core

	def call(self, kind, *args):
		self.session.n_requests += 1
		request = Request(self, self.session.n_requests, kind, args)
		self.world.requests.append(request)
		while not request.is_answered:
			yield
		self.agent.learn(request.answer_clock)
		self.agent.fence_release()
		return request.answer

	def reserve(self, seq=None, most=4):
		blocks = yield from self.call("reserve", self.rnd.randint(1, most))
		self.session.grants.update(blocks)
		(seq.spares if seq else self.session.pool).extend(blocks)

	def give_up_blocks(self):
		self.sync()
		blocks, self.session.release[:] = list(self.session.release), []
		if self.rnd.random() < 0.3 and self.session.pool:
			blocks.append(self.session.pool.pop())
		if blocks:
			self.session.grants.difference_update(blocks)
			self.session.references.update(dict.fromkeys(blocks, 0))
			yield from self.call("release", blocks)

	def placed(self, kind, *args):
		"""A new sequence that the core puts into a free place of ours."""
		if not self.free_places:
			return
		place = self.free_places.pop()
		answer = yield from self.call(kind, place, *args)
		if answer is None:
			self.free_places.append(place)
			return
		key, header, blocks, pin = answer
		if pin is not None:
			self.session.pins[pin] = 1
		if self.rules("own-blocks-counted"):
			for number in blocks:
				self.refer(number)
		self.sequences.append(Sequence(key, place, header, pin, is_known=True))

	def create(self):
		yield from self.placed("create", self.rnd.random() < 0.6)

	def fork_of_snapshot(self):
		yield from self.placed("fork", self.rnd.random() < 0.6)

	def take_over(self):
		yield from self.placed("take_over")

	def publish(self):
		if self.sequences:
			seq = self.rnd.choice(self.sequences)
			yield from self.call("publish", seq.place, seq.key)

	# ---- what a thread does, by weight

	def some(self):
		return self.rnd.sample(self.sequences,
			min(len(self.sequences), self.rnd.choice((1, 1, 1, 2, 3))))

	def generate(self):
		"""An update of one or several sequences, each by a part of its own."""
		kinds = self.world.scenario.kinds
		parts = [self.rnd.choice(kinds[seq.mode])(self, seq) for seq in self.some()]
		for part in parts:
			wanted, most = (2, 4) if part.seq.mode == NONE else (5, 8)
			if len(part.seq.spares) < wanted and not self.session.pool:
				yield from self.reserve(part.seq, most)
		if parts:
			yield from self.update(parts)

	def fork_local(self):
		if not self.sequences:
			return
		seq, other = self.rnd.choice(self.sequences), None
		if self.rnd.random() < 0.4:
			other = self.rnd.choice(self.session.threads)
			other = None if other is self else other
		places = other.offers if other else self.free_places
		if places:
			self.sync()
			yield from self.update([Fork(self, seq, places.pop(), other)])

	def offer_place(self):
		if len(self.free_places) > 1 and not self.offers:
			self.sync()
			self.offers.append(self.free_places.pop())
		return
		yield

	def adopt(self):
		if self.gifts:
			self.sync()
			yield from self.update([Adopt(self, self.gifts.pop())])

	def drop(self):
		if self.sequences:
			yield from self.update([Drop(self, self.rnd.choice(self.sequences))])


KINDS = {
	"append": Append,
	"rollback": Rollback,
	"mark": Mark,
	"mode": SetMode,
	"scatter": Scatter,
	"undo": UndoBack,
	"redo": UndoForward,
	"forget": Forget,
	"lay": Lay,
	"back": ReplayBack,
	"forward": ReplayForward,
	"fold": Fold
}
