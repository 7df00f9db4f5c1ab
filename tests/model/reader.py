# SPDX-License-Identifier: MIT
"""A process that reads a sequence while its writer writes: it gets one committed update, or knows
that it moved."""

from shared import BLOCK_SLOTS, IDLE, current, n_blocks
from world import must


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
		tokens = []
		for i in range(n_blocks(header.n_slots)):
			entry = current(agent, place.table[i], update)
			if entry is None:
				return
			for cell in world.blocks[entry[0]].slots[:header.n_slots - i * BLOCK_SLOTS]:
				tokens.append(agent.load(cell))
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
		must(expected is not None and expected.tokens == tuple(tokens),
			"a reader of %r at update %d saw %s, truth %s", writer, update, tokens,
			expected)
