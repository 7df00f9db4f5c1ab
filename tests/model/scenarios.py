# SPDX-License-Identifier: MIT
"""Who takes part, what they do and how often anyone dies: what must hold (SCENARIOS), and where a
broken rule shows soonest (HUNTS)."""

from client import KINDS


class Scenario:
	"""How many of what, what threads do by weight, and how often anyone dies."""

	def __init__(self, what, sessions=2, threads=1, kinds="append append rollback", ops=(),
			blocks=40, readers=0, operator=0.3, snapshots=0.7, removes=0,
			session_dies=0.0015, core_dies=0.0004, abandons=0.04, staleness=0.4,
			core_shares=(0.15, 0.3, 0.5)):
		self.what, self.blocks, self.readers = what, blocks, readers
		self.sessions, self.threads = sessions, threads
		self.operator, self.snapshots, self.removes = operator, snapshots, removes
		self.session_dies, self.core_dies, self.abandons = session_dies, core_dies, abandons
		self.staleness, self.core_shares = staleness, core_shares
		self.kinds = [KINDS[kind.replace("_", " ")] for kind in kinds.split()]
		self.ops = {"generate": 12, "create": 1, "give_up_blocks": 0.5}
		self.ops.update(ops)


FORKS = {"fork_local": 3, "drop": 2, "tell": 1}
GIFTS = {"fork_local": 4, "drop": 3, "offer_place": 2, "adopt": 4, "tell": 1}
SHARE = {"fork_of_snapshot": 2, "take_over": 1.5, "publish": 1.5, "drop": 1, "tell": 1}
ALL = dict(GIFTS, **SHARE)
SCENARIOS = {
	"alone": Scenario("one writer and the core: append, rollback, snapshot", 1),
	"many": Scenario("commands over several writers of several sessions hold all or none", 3,
		operator=0.7),
	"moved": Scenario("rollbacks by operators while the writer rolls back and appends", 1,
		operator=1, snapshots=0.4, session_dies=0.0003, staleness=0.7),
	"forks": Scenario("local forks and snapshots, dropped in any order",
		ops=dict(FORKS, create=3), blocks=48, session_dies=0.0005),
	"gifts": Scenario("forks between threads of one session", 1, 3, ops=GIFTS, blocks=56,
		session_dies=0.0003),
	"share": Scenario("forks of snapshots in other sessions, and of those inside",
		ops=dict(FORKS, **SHARE), blocks=56, removes=0.15, session_dies=0.0005),
	"takeover": Scenario("what the dead left is taken over", ops=dict(SHARE, take_over=4),
		blocks=56, session_dies=0.003),
	"in-place": Scenario("in-place writes with undo rows", ops={"create": 0.2},
		kinds="append in_place in_place rollback rows", operator=0.05, session_dies=0.003),
	"marks": Scenario("marks pushed, released, passed by rollbacks",
		ops={"take_over": 1, "drop": 0.3, "tell": 1}, kinds="append mark mark rollback",
		session_dies=0.002),
	"readers": Scenario("a reader of a live sequence gets one update or knows that it moved", 1,
		kinds="append append rollback rollback in_place", readers=3, operator=0.1,
		session_dies=0.0002, staleness=0.7),
	"short": Scenario("everything with too few blocks", threads=2, ops=ALL, blocks=20,
		kinds="append append append rollback mark"),
	"all": Scenario("everything", threads=2, ops=ALL, blocks=64, readers=1, operator=0.5,
		kinds="append append rollback in_place rows mark", session_dies=0.001),
}

ONE = {"create": 0, "give_up_blocks": 0}  # one sequence, so that all that happens happens to it
WATCHED = Scenario("", 1, ops=ONE, kinds="append rollback in_place", operator=0, session_dies=0,
	readers=4, staleness=0.7)
HUNTS = {
	"begin-checked": Scenario("", 1, kinds="append", ops=ONE, operator=1, snapshots=0,
		session_dies=0, core_dies=0, staleness=0.7, core_shares=(0.5, 0.6, 0.7)),
	"begin-acquires": Scenario("", 1, kinds="append rollback", ops=ONE, operator=1,
		session_dies=0, core_dies=0, staleness=0.7),
	"reuse-after-swap": Scenario("", 1, kinds="append rollback", ops=ONE, operator=1,
		snapshots=0.9, session_dies=0, core_dies=0),
	"fork-raises-marks": Scenario("", 1, kinds="append rollback", ops=FORKS, operator=0.02,
		session_dies=0),
	"place-cleared": Scenario("", 1, 3, ops=GIFTS, blocks=60, operator=0.05, session_dies=0),
	"pin-outlives-parent": Scenario("", 3, removes=0.4, session_dies=0.0008,
		ops=dict(SHARE, generate=6, fork_local=4, drop=3, tell=3)),
	"log-releases": Scenario("", core_dies=0.004, operator=0.7),
	"decided-once": Scenario("", 3, core_dies=0.004, operator=0.7, snapshots=0.3),
	"in-place-needs-count": Scenario("", kinds="append in_place in_place in_place",
		operator=0.05, session_dies=0.004),
	"rows-newest-first": Scenario("", kinds="append in_place in_place in_place",
		operator=0.02, session_dies=0.004),
	"rows-end-with-bound": Scenario("", kinds="append append in_place rollback",
		operator=0.02, session_dies=0.003, abandons=0.4),
	"open-fence": WATCHED,
	"reader-fence": WATCHED,
	"reader-acquires": WATCHED,
	"all-held-at-once": SCENARIOS["many"],
	"decided-completed": SCENARIOS["many"],
	"held-let-go": SCENARIOS["many"],
	"answers-kept": SCENARIOS["many"],
	"moved-refused": SCENARIOS["moved"],
	"references-counted": SCENARIOS["forks"],
	"header-names-sequence": SCENARIOS["forks"],
	"fork-entries-zero": SCENARIOS["forks"],
	"foreign-untouched": SCENARIOS["share"],
	"own-blocks-counted": SCENARIOS["share"],
	"released-once": SCENARIOS["share"],
	"parked-pinned": SCENARIOS["takeover"],
	"marks-read-again": SCENARIOS["in-place"],
	"open-acquires": SCENARIOS["in-place"],
	"rows-put-back": SCENARIOS["in-place"],
	"rows-only-own": SCENARIOS["in-place"],
	"row-release": SCENARIOS["in-place"],
	"row-fence": SCENARIOS["in-place"],
	"marks-above-count": SCENARIOS["marks"],
	"marks-dropped": SCENARIOS["marks"],
}
