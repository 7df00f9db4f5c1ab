"""Weak memory: shared cells, and agents that load and store them as C11 lets them.

Promise: whatever a program of relaxed, acquire and release accesses, fences and compare-and-swaps
may see under C11 (without out-of-thin-air and load-buffering effects), an agent here may see too.
Every cell keeps its last few stores in modification order. A load returns any store that is not
older than one the agent must know of: its own, one it has read, or one that happened before by a
release that it acquired (vector clocks). So stores pass each other, and loads are stale, wherever
no order was asked for.

Death: a killed agent's stores since its last barrier (a successful swap) land as an arbitrary
subset, restricted only by what others have seen already, by release fences (nothing after a fence
lands unless all before it did) and by release stores (which land with all before them). Hardware is
milder: what retired lands. The compiler is what this stands for.
"""

KEEP = 8  # stores kept a cell; older ones nobody reads any more
N_AGENTS = 12


def join(a, b):
	"""The later of two clocks, element by element; None is the beginning of time."""
	if a is None or b is None:
		return a or b
	return [x if x > y else y for x, y in zip(a, b)]


class Store:
	"""One store to one cell: who, when by its clock, and what a reader that acquires it
	learns."""
	__slots__ = ("value", "by", "time", "carries", "seen")

	def __init__(self, value, by=None, time=0, carries=None):
		self.value, self.by, self.time = value, by, time
		self.carries, self.seen = carries, False


class Cell:
	"""A word of shared memory. `newest` is for the observer outside the machine only."""
	__slots__ = ("stores", "oldest")

	def __init__(self, value):
		self.stores = [Store(value)]
		self.oldest = self.stores[0]

	@property
	def newest(self):
		return self.stores[-1].value

	def append(self, store):
		self.stores.append(store)
		if len(self.stores) > KEEP:
			self.oldest = self.stores.pop(0)

	def forget(self, store):
		"""The store never landed."""
		if store in self.stores:
			self.stores.remove(store)
			if not self.stores:
				self.stores.append(self.oldest)


class Agent:
	"""One thread of one process. `number` is its place in the clocks; a later life takes the
	number over."""
	def __init__(self, number, rnd, past=None, staleness=0.4):
		self.number, self.rnd, self.staleness = number, rnd, staleness
		self.clock = list(past) if past else [0] * N_AGENTS
		self.fence, self.pending = None, None
		self.read = {}
		self.unlanded = []

	def knows(self, store):
		return store.by is None or self.clock[store.by] >= store.time

	def load(self, cell, acquire=False):
		stores = cell.stores
		i = len(stores) - 1
		store = stores[i]
		if not self.knows(store):
			last = self.read.get(cell)
			while i and store is not last and not self.knows(
				store) and self.rnd.random() < self.staleness:
				i -= 1
				store = stores[i]
			if not self.knows(store):
				self.read[cell] = store
				store.seen = True
		if store.carries:
			if acquire:
				self.clock = join(self.clock, store.carries)
			else:
				self.pending = join(self.pending, store.carries)
		return store.value

	def store(self, cell, value, release=False):
		self.clock[self.number] += 1
		carries = list(self.clock) if release else self.fence
		store = Store(value, self.number, self.clock[self.number], carries)
		cell.append(store)
		self.unlanded.append((cell, store, release))

	def swap(self, cell, expected, value, acquire=True, release=True):
		"""Compare and swap. Success is a barrier for death: a processor has finished what
		it swapped behind."""
		old = cell.stores[-1]
		if old.value != expected:
			return False
		if old.by != self.number:
			old.seen = True
		if acquire:
			self.clock = join(self.clock, old.carries)
		self.clock[self.number] += 1
		carries = join(old.carries, self.clock if release else self.fence)
		cell.append(
			Store(value, self.number, self.clock[self.number], carries
			and list(carries)))
		if release:
			self.unlanded.clear()
		return True

	def fence_release(self):
		self.fence = list(self.clock)
		if self.unlanded and self.unlanded[-1] is not None:
			self.unlanded.append(None)

	def fence_acquire(self):
		self.clock = join(self.clock, self.pending)

	def barrier(self):
		"""What a system call, a message sent or the end of a log record is: all before has
		landed."""
		self.fence = list(self.clock)
		self.unlanded.clear()

	def learn(self, clock):
		"""What a message received, or a death noticed through a pidfd, is."""
		self.clock = join(self.clock, clock)

	def die(self):
		"""Lands a subset of what was not yet ordered. Half of the deaths are mild: all
		lands."""
		if self.rnd.random() < 0.5:
			return
		n_fences = self.unlanded.count(None)
		cut = self.rnd.randint(0, n_fences)
		section, all_before = n_fences, False
		for item in reversed(self.unlanded):
			if item is None:
				section -= 1
				continue
			cell, store, release = item
			lands = all_before or store.seen or section < cut or (section == cut
				and self.rnd.random() < 0.5)
			if not lands:
				cell.forget(store)
			elif release or section > cut:
				all_before = True
