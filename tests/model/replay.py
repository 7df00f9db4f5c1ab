"""Updates of a sequence with a replay journal: blocks stay as they are, rows are laid over them;
and fold, which makes blocks of rows."""

from shared import BLOCK_SLOTS, REPLAY, Vector
from steps import Back, Forward, Journaled
from truth import folded, laid_over


class Lay(Journaled):
	"""A step: rows for new tokens and for slots that are there already."""
	mode = REPLAY

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok:
			return False
		slots = {slot: self.world.token() for slot in self.plan()}
		writes = tuple(slot + (value, ) for slot, value in slots.items())
		image = yield from self.maybe_planes(update, self.base.image)
		if image is None:
			return False
		now = self.base.image
		image = image._replace(n_tokens=self.n_tokens,
			seen=laid_over(now.seen, writes, self.n_tokens))
		vectors = [Vector(group, slot, None, value) for group, slot, value in writes]
		rows, points = self.step(vectors, image, writes)
		if not self.fits(points):
			return False
		self.state = self.base._replace(image=image, points=points)
		ok = yield from self.write_rows(rows, update)
		if ok:
			self.drop_outside(update)
		return ok


class ReplayBack(Back):
	mode = REPLAY

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok or not self.choose():
			return False
		self.drop_outside(update, self.pops)
		return True


class ReplayForward(Forward):
	mode = REPLAY

	def begin(self, update):
		ok = yield from self.read(update)
		return ok and self.choose(self.known_future())


class Fold(Journaled):
	"""The oldest steps, or all, become blocks. Slots of the base are never written where they
	are: their block is copied, also if it is the writer's own."""
	mode = REPLAY

	def begin(self, update):
		ok = yield from self.read(update)
		if not ok or len(self.base.points) < 2:
			return False
		points, self.end = self.base.points, self.header.end
		i = self.rnd.randint(1, len(points) - 1)
		if self.rnd.random() < 0.4:
			i = len(points) - 1
		self.n_base = points[i].image.n_tokens
		rows = yield from self.read_rows(self.header.first, points[i].end, update)
		values = {row[:2]: folded(row.new) for row in rows if isinstance(row, Vector)}
		ok = yield from self.write_blocks(values, update)
		if not ok:
			return False
		self.make(i, [key + (value, ) for key, value in values.items()])
		self.drop_outside(update)
		return True

	def write_blocks(self, values, update):
		for (group, slot), value in sorted(values.items(), key=lambda item: item[0]):
			name = (group, slot // BLOCK_SLOTS)
			if slot < self.slots(group) and name not in self.pending:
				entry = self.entry(name, update)
				if self.rules("fold-copies") or not self.is_own(entry[1]):
					if self.replace(name, entry,
						self.top[group] - name[1] * BLOCK_SLOTS) is None:
						return False
					yield
				else:
					self.write(entry[0], slot, value)
					yield
					continue
			ok = yield from self.append(group, slot, value, update)
			if not ok:
				return False
		return True

	def make(self, i, writes):
		base = laid_over(self.base.image.base, writes, self.n_base)
		points, rows = [], []
		for point in self.base.points[i:]:
			rows += point.writes if points else ()
			image = point.image._replace(base=base,
				seen=laid_over(base, rows, point.image.n_tokens))
			points.append(point._replace(image=image,
				writes=point.writes if points else ()))
		self.first = points[0].end - 1 if len(points) > 1 else self.end
		marks = self.base.marks
		if not any(mark[2] >= points[0].end for mark in marks):
			marks = ()
		image = points[-1].image
		self.state = self.base._replace(image=image, marks=marks,
			points=tuple(points) if len(points) > 1 else ())

	def new_header(self):
		return super().new_header()._replace(n_base=self.n_base)
