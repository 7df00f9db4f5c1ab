"""What sessions ask of the core: blocks, sequences from nothing, from a snapshot or from the dead,
snapshots. Record and answer are one record, so a request that comes again is answered, not done.
"""

from collections import namedtuple

from shared import Header, fill
from truth import created, must
from world import Saved

ZERO = 0

Target = namedtuple("Target", "place key")
Step = namedtuple("Step", "place update header state")  # of a decided command: the truth it makes


class Requests:
	"""The part of Core that serves them; holds and decisions are in the rest of it."""

	def serve(self, request):
		self.agent.learn(request.clock)
		self.agent.fence_release()
		yield
		key = (request.session.number, request.number)
		if key in self.catalogue.answers and self.rules("answers-kept"):
			return self.reply(request)
		yield from getattr(self, "serve_" + request.kind)(request, *request.args)

	def note_answer(self, request, answer):
		if request is not None:
			self.catalogue.answers[(request.session.number, request.number)] = answer

	def answer(self, request, answer, change=None):
		"""Record and answer are one record."""
		def both():
			if change:
				change()
			self.note_answer(request, answer)

		if request is not None:
			self.catalogue.record(self.agent, both)
			self.reply(request)

	def reply(self, request):
		"""Sending may be the step that death prevents: then the request comes again."""
		if request is None or not request.session.is_alive or self.rnd.random() < 0.05:
			return
		request.answer = self.catalogue.answers[(request.session.number, request.number)]
		self.agent.barrier()
		request.answer_clock = list(self.agent.clock)
		request.is_answered = True
		self.world.requests.remove(request)

	def serve_reserve(self, request, n):
		catalogue = self.catalogue
		blocks = sorted(catalogue.free)
		self.rnd.shuffle(blocks)
		blocks = blocks[:n]
		for number in blocks:
			for cell in self.world.blocks[number].slots:
				self.agent.store(cell, ZERO)
			yield

		def change():
			catalogue.free.difference_update(blocks)
			catalogue.grants.update({b: request.session.number for b in blocks})

		self.answer(request, blocks, change)

	def serve_release(self, request, blocks):
		def change():
			for number in blocks:
				must(
					self.catalogue.grants.get(number) == request.session.number,
					"block %d was given back twice", number)
				del self.catalogue.grants[number]

		self.answer(request, True, change)
		yield

	def serve_unpin(self, request, pin):
		self.answer(request, True, lambda: self.catalogue.pins.pop(pin, None))
		yield

	def serve_forget(self, request, key):
		self.answer(request, True, lambda: self.catalogue.sequences.pop(key, None))
		yield

	def serve_create(self, request, place, is_named):
		layers, mode = self.world.scenario.layers, self.world.scenario.born
		base = Saved({}, Header(None, layers, mode=mode), created(layers, mode))
		yield from self.install(request, place, base, self.world.key(), is_named)

	def serve_fork(self, request, place, is_named):
		if not self.catalogue.snapshots:
			return self.answer(request, None)
		number = self.rnd.choice(sorted(self.catalogue.snapshots))
		base = self.catalogue.snapshots[number]
		yield from self.install(request, place, base, self.world.key(), is_named)
		self.world.count("core forks")

	def serve_take_over(self, request, place):
		if not self.catalogue.parked:
			return self.answer(request, None)
		key = self.rnd.choice(sorted(self.catalogue.parked))
		yield from self.install(request, place, self.catalogue.parked[key], key, True)
		self.world.count("takeovers")

	def install(self, request, place, base, key, is_named):
		"""A sequence in a free place of the caller, who waits: an update of the core's own
		on the caller's writer."""
		catalogue, agent, writer = self.catalogue, self.agent, place.writer
		ok = yield from self.hold(writer)
		if not ok:
			return
		update = agent.load(writer.word)[2]
		header = base.header._replace(key=key)
		for cell, value in place.fresh(header, self.rules):
			agent.store(cell, value)
		for name, number in base.blocks.items():
			entry = (number, 0 if self.rules("fork-entries-zero") else 1)
			fill(agent, place.entry(name), update, entry, self.rules)
			yield
		for cell, mark in zip(place.marks, base.state.marks):
			agent.store(cell, mark)
		yield
		blocks = list(base.blocks.values())
		pin = catalogue.new_id() if blocks else None

		def change():
			if pin is not None:
				catalogue.pins[pin] = (request.session.number, blocks)
			catalogue.parked.pop(key, None)
			catalogue.sequences[key] = (request.session.number, place, is_named)
			self.note_answer(request, (key, header, blocks, pin))

		self.decide([Step(place, update, header, base.state._replace(key=key))], change)
		yield
		yield from self.carry_out()
		self.reply(request)

	def serve_publish(self, request, place, key):
		yield from self.snapshot([Target(place, key)], request)
