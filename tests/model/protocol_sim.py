#!/usr/bin/python3
"""The commit protocol, run by random interleavings with death at every point. TAP: a line a
scenario, a line a rule.

	protocol_sim.py [--runs N] [--steps N] [--seed S]
		[--rules-only | --scenarios-only] [NAME...]

The suite runs it with its defaults: fixed seeds, some twenty seconds of one processor. By hand,
after a change of the protocol: `tests/model/protocol_sim.py --scenarios-only --runs 2000 --seed
1000`. A failure prints scenario, seed and step; `--seed S --runs 1 NAME` repeats it.

What it is. Sessions of several threads, each the writer of several sequences, and the core are
generators; each yield is a point at which the others run or anyone dies. They follow the rules of
the commit protocol (rules.py) and share memory that is as weak as C11 allows (memory.py).
shared.py: the words in shared memory. client.py: what libkvcache does; parts.py, steps.py, undo.py,
replay.py: what its updates are made of. core.py, serve.py: what the core does. reader.py: a process
that looks on. truth.py: what a sequence is, and whether memory says so. world.py: what was
committed, the core's log, and what must hold at all times: a writer's committed state is what its
updates made it, slots, rows laid over them, planes, and every step that the journal can go back to;
a snapshot never changes; every block is free, granted or pinned, and a granted one is in one list
or in as many tables as are counted. A freed block is overwritten at once. Then each rule is broken
in turn, and the run must find a violation: so it is known to be able to.

Modelled: append, rollback, both in one update, marks, reserve and release of blocks, local forks
and snapshots, forks from thread to thread, forks and takeover through the core, snapshots and
operators' rollbacks over several writers, sessions and core killed, lost answers, readers; journals
in tables whose entries wrap: in-place updates of several sequences with undo rows, that meet a
freeze, die, are abandoned; rollback through rows, decided and finished by whoever comes next; steps
applied again; the oldest forgotten; replay rows, cut, applied again, folded in part or whole;
versions of the sequence planes; a ring beside global layers; journals that change their mode.
Blocks of four slots, rows, or parts of a version. Not modelled: layers and heads inside a block, a
row in more than one piece, conversion, a client that lies.

What the C code needs of memory order ("swap": compare-and-swap of the commit word):

 1. opening swap: acquire. Marks are read again after it for in-place writes and local forks.
 2. release fence after the opening swap, before headers, entries, rows and bytes are stored under
    it. What the next update writes with the word idle is then ordered for readers too.
 3. committing swap (to idle or held): release. All stores of the update, appended bytes included,
    come before it.
 4. core: the swap to held, or the load that finds held: acquire; a release fence after it.
 5. core: the swap that lets go: release. Frozen marks and headers come before it.
 6. core: a log record is complete, and counted, after all that it tells of is in shared memory
    (release before), and before what it decides is swapped in (release fence after).
 7. beginning an update: load of the word: acquire; then header and marks. Whoever reads a header
    without a hold, the writer too, looks at the word again (acquire fence, load) before it uses
    what it read: two rollbacks by operators may have rewritten the copy in between. For the writer
    only the update number must be equal. A writer that keeps its header in private memory needs
    this only when it reads it anew.
 8. undo rows: entries of new journal blocks, then the end of the rows (release), then a release
    fence, then the first slot is overwritten. The rows themselves come before the opening swap.
    A rollback through rows: entries and headers, then `decided` (release), then a release fence,
    then the first slot that is put back. The end of the rows is lowered before the next opening
    swap (release). Where an update in place is abandoned: slots are put back, then the end of
    the rows is lowered (release), then a release fence, then stamps are cleared. The core: rows
    are put back, the word is swapped to idle (release), then stamps are cleared.
 9. reader: load of the word (acquire), copies, acquire fence, load of the word: equal and idle, or
    it moved.
10. freeze count for the reuse of a block: loaded after the committing swap (acquire there).
11. stamp and body of a copy: no order of their own. The same holds for table entries, marks and
    appended bytes.
12. places and blocks that pass between threads, and counts of references: acquire and release, as a
    mutex is.
"""

import argparse
import random
import sys

sys.dont_write_bytecode = True

from client import Session, Thread  # noqa: E402
from core import Core  # noqa: E402
from memory import Agent  # noqa: E402
from reader import Reader  # noqa: E402
from rules import RULES, Rules  # noqa: E402
from scenarios import HUNTS, SCENARIOS  # noqa: E402
from shared import HELD, OPEN, WANTED  # noqa: E402
from truth import Violation  # noqa: E402
from world import World  # noqa: E402

RUNS, STEPS = 4, 4000
HUNT_RUNS, HUNT_STEPS = 120, 3000


class Run:
	"""One seed: who runs next, and who dies."""
	def __init__(self, scenario, seed, rules):
		self.scenario, self.rnd = scenario, random.Random(seed)
		self.world = World(self.rnd, rules, scenario)
		self.n_sessions = 0
		self.core = Core(self.world, Agent(0, self.rnd, staleness=scenario.staleness))
		self.readers = [
			Reader(self.world, self.world.agent()) for _ in range(scenario.readers)
		]
		self.core_share = self.rnd.choice(scenario.core_shares)
		self.stickiness = self.rnd.choice((0.0, 0.5, 0.9))

	def attach(self):
		self.n_sessions += 1
		self.world.sessions.append(
			Session(self.world, self.n_sessions, self.scenario.threads))

	def kill_session(self, who):
		alive = [s for s in self.world.sessions if s.is_alive]
		if alive:
			session = getattr(who, "session", None) or self.rnd.choice(alive)
			session.kill()
			self.world.requests[:] = [
				r for r in self.world.requests if r.session is not session
			]
			self.world.count("sessions killed")

	def kill_core(self):
		self.core.agent.die()
		self.core = Core(self.world,
			Agent(0, self.rnd, self.core.agent.clock, self.scenario.staleness))
		self.world.count("cores killed")

	def choose(self):
		if self.rnd.random() < self.core_share:
			return self.core
		others = [t for s in self.world.sessions if s.is_alive
			for t in s.threads] + self.readers
		return self.rnd.choice(others) if others else self.core

	def go(self, n_steps):
		world, who = self.world, None
		for world.n_steps in range(n_steps):
			if len(world.sessions) < self.scenario.sessions:
				self.attach()
			if who is None or self.rnd.random() >= self.stickiness:
				who = self.choose()
			next(who.steps)
			luck = self.rnd.random()
			if luck < self.scenario.session_dies * (
				self.scenario.open_dies if self.is_open(who) else 1):
				self.kill_session(who)
				who = None
			elif self.core.is_acting and luck > 1 - self.core_dies(luck):
				self.kill_core()
				who = None
			if world.n_steps % 25 == 0:
				world.check_now()
			if world.n_steps % 400 == 0:
				world.check_saved()
		world.check_now()
		world.check_saved()
		return world.counts

	@staticmethod
	def is_open(who):
		return isinstance(who, Thread) and who.writer.word.newest[0] in (OPEN, WANTED)

	def core_dies(self, luck):
		"""With a word in its hand, or a dead session, the core dies ten times as often."""
		chance = self.scenario.core_dies
		if luck <= 1 - 10 * chance or luck > 1 - chance:
			return chance
		is_held = any(w.word.newest[0] in (HELD, WANTED) or not s.is_alive
			for s in self.world.sessions for w in s.writers)
		return 10 * chance if is_held else chance


def try_seed(scenario, name, seed, n_steps, rules=Rules()):
	"""What a run counted, and the violation that it found or None."""
	run = Run(scenario, "%s/%d" % (name, seed), rules)
	try:
		return run.go(n_steps), None
	except Violation as violation:
		return run.world.counts, "%s, seed %d, step %d: %s" % (name, seed,
			run.world.n_steps, violation)


class Tap:
	def __init__(self):
		self.n_tests = self.n_failed = 0

	def line(self, is_ok, sentence, *notes):
		self.n_tests += 1
		self.n_failed += not is_ok
		for note in notes:
			print("# " + note)
		print("%sok %d - %s" % ("" if is_ok else "not ", self.n_tests, sentence))
		sys.stdout.flush()


def run_scenario(tap, name, options):
	"""The protocol holds."""
	scenario, total, found = SCENARIOS[name], {}, []
	for seed in range(options.seed, options.seed + options.runs):
		counts, violation = try_seed(scenario, name, seed, options.steps)
		for what, n in counts.items():
			total[what] = total.get(what, 0) + n
		if violation:
			found.append(violation)
	summary = ", ".join("%d %s" % (n, what) for what, n in sorted(total.items()))
	tap.line(not found, "%s: %s" % (name, scenario.what), summary, *found)


def run_rule(tap, rule):
	"""Without the rule a violation is found, so the rule is needed and the run can see it."""
	scenario, found = HUNTS.get(rule, SCENARIOS["alone"]), None
	for seed in range(HUNT_RUNS):
		_, found = try_seed(scenario, rule, seed, HUNT_STEPS, Rules([rule]))
		if found:
			break
	tap.line(found is not None, "needed: " + RULES[rule], found
		or "no violation in %d runs without it" % HUNT_RUNS)


def main():
	parser = argparse.ArgumentParser(description="random interleavings of the commit protocol")
	parser.add_argument("names", nargs="*", metavar="NAME",
		help="scenarios or rules; all if none")
	parser.add_argument("--runs", type=int, default=RUNS, help="seeds a scenario (%(default)s)")
	parser.add_argument("--steps", type=int, default=STEPS, help="steps a run (%(default)s)")
	parser.add_argument("--seed", type=int, default=0, help="first seed (%(default)s)")
	parser.add_argument("--scenarios-only", action="store_true",
		help="leave out the rules that are broken on purpose")
	parser.add_argument("--rules-only", action="store_true", help="leave out the scenarios")
	options = parser.parse_args()
	wrong = [name for name in options.names if name not in SCENARIOS and name not in RULES]
	if wrong:
		parser.error("no scenario or rule is called %s" % ", ".join(wrong))
	scenarios = [] if options.rules_only else [
		n for n in SCENARIOS if not options.names or n in options.names
	]
	rules = [] if options.scenarios_only else [
		n for n in RULES if not options.names or n in options.names
	]
	tap = Tap()
	print("1..%d" % (len(scenarios) + len(rules)))
	for name in scenarios:
		run_scenario(tap, name, options)
	for rule in rules:
		run_rule(tap, rule)
	return 1 if tap.n_failed else 0


if __name__ == "__main__":
	sys.exit(main())
