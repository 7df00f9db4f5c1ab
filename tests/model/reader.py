"""A process that reads a sequence while its writer writes: it gets one committed update, or knows
that it moved."""

from shared import BLOCK_SLOTS, IDLE, JOURNAL, REPLAY, STATES, Vector, current, n_slots
from truth import Image, laid_over, must


class Reader:
	def __init__(self, world, agent):
		self.world, self.agent, self.rnd, self.rules = world, agent, world.rnd, world.rules
		self.steps = self.run()

	def run(self):
		while True:
			yield
			alive = [w for s in self.world.sessions if s.is_alive for w in s.writers]
			if alive:
				yield from self.read(self.rnd.choice(alive))

	def read(self, writer):
		agent, world = self.agent, self.world
		place = self.rnd.choice(writer.places)
		first = agent.load(writer.word, acquire=self.rules("reader-acquires"))
		yield
		state, _, update = first
		header = current(agent, place.header, update)
		if state != IDLE or header is None:
			return
		yield
		values = []
		for group, i in self.seen(header):
			entry = current(agent, place.entry((group, i // BLOCK_SLOTS)), update)
			if entry is None:
				return
			values.append((group, i, agent.load(
				world.blocks[entry[0]].slots[i % BLOCK_SLOTS])))
			if self.rnd.random() < 0.4:
				yield
		if self.rules("reader-fence"):
			agent.fence_acquire()
		if agent.load(writer.word) != first:
			world.count("reads moved")
			return
		known = world.history.get(writer, {}).get(update)
		if known is None:
			return
		world.count("reads")
		expected = known.get(place.index)
		must(expected is not None and self.image(values, header) == expected.image,
			"a reader of %r at update %d saw %s, truth %s", writer, update, values,
			expected)

	def seen(self, header):
		"""What is read: slots, rows over them, the planes that count."""
		for group in header.layers:
			yield from ((group, i) for i in range(n_slots(group, header.n_base)))
		if header.mode == REPLAY:
			yield from ((JOURNAL, i) for i in range(header.first, header.end))
		if header.now:
			first = (header.now - 1) * BLOCK_SLOTS
			yield from ((STATES, i) for i in range(first, first + BLOCK_SLOTS))

	def image(self, values, header):
		base = tuple(tuple(v for g, _, v in values if g == group)
			for group in header.layers)
		rows = [v for g, _, v in values if g == JOURNAL]
		writes = [(row.group, row.slot, row.new) for row in rows if isinstance(row, Vector)]
		planes = tuple(v for g, _, v in values if g == STATES)
		try:
			seen = laid_over(base, writes, header.n_tokens)
		except IndexError:
			return None
		return Image(header.n_tokens, base, seen, header.now, planes or None)
