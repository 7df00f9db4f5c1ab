"""Who takes part, what they do and how often anyone dies: what must hold (SCENARIOS), and where a
broken rule shows soonest (HUNTS)."""

from client import KINDS
from shared import GLOBAL, LAYERS, NONE, REPLAY, UNDO


class Scenario:
	"""How many of what, what threads do by weight, and how often anyone dies. `kinds`, `undo`,
	`replay`: parts of updates, by mode of the journal; `born`: mode of what is created."""

	def __init__(self, what, sessions=2, threads=1, kinds="append append rollback", undo="",
			replay="", born=NONE, ring=False, planes=0, ops=(), blocks=40, readers=0,
			operator=0.3, snapshots=0.7, removes=0, session_dies=0.0015, open_dies=8,
			core_dies=0.0004, abandons=0.04, staleness=0.4,
			core_shares=(0.15, 0.3, 0.5)):
		self.what, self.blocks, self.readers = what, blocks, readers
		self.sessions, self.threads = sessions, threads
		self.operator, self.snapshots, self.removes = operator, snapshots, removes
		self.session_dies, self.core_dies, self.abandons = session_dies, core_dies, abandons
		self.open_dies = open_dies  # times as often as elsewhere: it is what this is about
		self.staleness, self.core_shares = staleness, core_shares
		self.layers = LAYERS if ring else (GLOBAL, )
		self.born, self.planes = born, planes
		self.kinds = {mode: [KINDS[kind] for kind in of_mode.split()]
			for mode, of_mode in ((NONE, kinds), (UNDO, undo), (REPLAY, replay))}
		self.modes = [mode for mode in self.kinds if self.kinds[mode]]
		self.ops = {"generate": 12, "create": 1, "give_up_blocks": 0.5}
		self.ops.update(ops)


FORKS = {"fork_local": 3, "drop": 2, "tell": 1}
GIFTS = {"fork_local": 4, "drop": 3, "offer_place": 2, "adopt": 4, "tell": 1}
SHARE = {"fork_of_snapshot": 2, "take_over": 1.5, "publish": 1.5, "drop": 1, "tell": 1}
ALL = dict(GIFTS, **SHARE)
KEEP = {"create": 0.1, "take_over": 0.7, "give_up_blocks": 0.1}
QUIET = (0.08, 0.15, 0.3)  # the core's share, where clients have long updates
STEPS = "scatter scatter scatter scatter undo undo redo redo forget"
LAID = "lay lay lay lay back back forward fold fold"
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
	"undo": Scenario("slots overwritten and put back through an undo journal", 1, born=UNDO,
		kinds="", undo=STEPS + " mark", ops=dict(KEEP, create=0.4), operator=0.05,
		snapshots=1, blocks=64, session_dies=0.001, core_shares=QUIET),
	"undo-planes": Scenario("the same with a ring beside and planes, forked and dropped", 1,
		born=UNDO, kinds="", undo=STEPS, ring=True, planes=0.4, operator=0.15, snapshots=1,
		blocks=80, ops=dict(KEEP, fork_local=1, drop=0.3, tell=1), session_dies=0.0004,
		core_shares=QUIET),
	"replay": Scenario("rows laid over untouched blocks, cut, applied again, folded", 1,
		born=REPLAY, kinds="", replay=LAID + " mark", ops=dict(KEEP, create=0.4),
		operator=0.15, blocks=80, session_dies=0.0006, core_shares=QUIET),
	"replay-planes": Scenario("the same with a ring beside and planes, forked and dropped", 1,
		born=REPLAY, kinds="", replay=LAID, ring=True, planes=0.4, operator=0.15, blocks=96,
		ops=dict(KEEP, fork_local=1, drop=0.3, tell=1), session_dies=0.0004,
		core_shares=QUIET),
	"modes": Scenario("journals that end and begin in another mode", 1,
		kinds="append append mode", undo="scatter scatter undo forget mode",
		replay="lay lay back fold fold mode", ops=KEEP, operator=0.2, blocks=80,
		session_dies=0.0006, core_shares=QUIET),
	"marks": Scenario("marks pushed, released, passed by rollbacks",
		ops={"take_over": 1, "drop": 0.3, "tell": 1}, kinds="append mark mark rollback",
		session_dies=0.002),
	"readers": Scenario("a reader of a live sequence gets one update or knows that it moved", 1,
		kinds="append append rollback rollback mode", undo="scatter scatter undo mode",
		replay="lay back fold mode", readers=3, operator=0.1, session_dies=0.0002,
		staleness=0.7),
	"short": Scenario("everything with too few blocks", threads=2, ops=ALL, blocks=20,
		kinds="append append append rollback mark"),
	"all": Scenario("everything", threads=2, ops=ALL, blocks=96, readers=1, operator=0.5,
		kinds="append append rollback mode mark", undo=STEPS + " mark mode",
		replay=LAID + " mark mode", planes=0.2, session_dies=0.001),
}

ONE = {"create": 0, "give_up_blocks": 0}  # one sequence, so that all that happens happens to it
WATCHED = Scenario("", 1, ops=ONE, kinds="append rollback", operator=0, session_dies=0,
	readers=4, staleness=0.7)
# Updates in place that die, and nothing else that makes blocks frozen.
DYING = dict(sessions=1, born=UNDO, kinds="", undo="scatter scatter undo", ops=ONE, operator=0,
	core_dies=0, session_dies=0.0003, open_dies=40, abandons=0, core_shares=(0.15, ))
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
	"pin-outlives-parent": Scenario("", removes=0.2, operator=1, session_dies=0.0002,
		core_shares=(0.3, 0.5), ops={"generate": 3, "create": 0.5, "publish": 2,
			"fork_of_snapshot": 4, "fork_local": 6, "drop": 5, "tell": 5}),
	"log-releases": Scenario("", core_dies=0.004, operator=0.7),
	"decided-once": Scenario("", 3, core_dies=0.004, operator=0.7, snapshots=0.3),
	"marks-of-all": Scenario("", 1, born=UNDO, kinds="", undo="scatter", ops={"create": 3},
		operator=1, snapshots=1, session_dies=0, core_dies=0, blocks=80,
		core_shares=(0.3, 0.5)),
	"abandon-bumps": Scenario("", 1, born=UNDO, kinds="", undo="scatter", ops=ONE, operator=0,
		readers=4, session_dies=0, abandons=0.5, staleness=0.7),
	"rows-end-with-bound": Scenario("", **dict(DYING, open_dies=20, abandons=0.4)),
	"rows-end-installed": Scenario("", **dict(DYING, undo="scatter scatter mark", open_dies=20,
		operator=0.02, ops={"take_over": 4, "drop": 3, "tell": 3, "fork_local": 2})),
	"rows-below-length": Scenario("", **dict(DYING, abandons=0.2)),
	"rows-end-lowered": Scenario("", **dict(DYING, undo="scatter scatter undo undo", blocks=64,
		ops={"create": 2, "give_up_blocks": 0})),
	"open-put-back": Scenario("", **dict(DYING, undo="scatter undo", session_dies=0.003,
		open_dies=0)),
	"abandon-orders": Scenario("", **dict(DYING, undo="scatter", abandons=0.8, open_dies=60)),
	"idle-before-cleared": Scenario("", **dict(DYING, undo="scatter", core_dies=0.02,
		session_dies=0.001)),
	"future-ends": Scenario("", **dict(DYING, undo="scatter scatter undo redo", session_dies=0,
		abandons=0.4)),
	"mode-starts-fresh": Scenario("", 1, born=REPLAY, kinds="mode", undo="scatter forget mode",
		replay="lay lay back fold fold mode", ops=ONE, operator=1, snapshots=0.6,
		session_dies=0, core_dies=0, core_shares=(0.15, 0.3)),
}
for where, rules in (
	(WATCHED, "open-fence reader-fence reader-acquires"),
	(Scenario("", **DYING), "decided-stored decided-first decided-after-fill decided-finished "
		"decided-releases decided-fence row-fence row-release rows-end-first rows-end-kept "
		"journal-entry-first journal-at-next back-newest-first"),
	(SCENARIOS["many"], "all-held-at-once decided-completed held-let-go answers-kept"),
	(SCENARIOS["moved"], "moved-refused"),
	(SCENARIOS["forks"], "references-counted header-names-sequence fork-entries-zero"),
	(SCENARIOS["share"], "foreign-untouched own-blocks-counted released-once"),
	(SCENARIOS["takeover"], "parked-pinned"),
	(SCENARIOS["marks"], "marks-above-count marks-dropped"),
	(SCENARIOS["undo"], "marks-read-again open-acquires rows-put-back rows-only-own "
		"rows-newest-first in-place-needs-count copy-takes-appended decided-by-number "
		"undo-rows-private"),
	(SCENARIOS["undo-planes"], "ring-by-rows frozen-each-group versions-kept version-fresh"),
	(SCENARIOS["replay"], "frozen-rows rows-below-frozen snapshot-holds-rows window-fits "
		"fold-copies"),
):
	HUNTS.update(dict.fromkeys(rules.split(), where))
