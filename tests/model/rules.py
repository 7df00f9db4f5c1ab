"""The rules of the protocol, by name: each can be broken on purpose (`Rules`), and the simulation
must then find an error, or the rule is not tested."""

RULES = {
	"marks-raised": "a freeze raises frozen_slots and the freeze count",
	"count-raised": "a freeze raises the freeze count, not frozen_slots alone",
	"copy-below-frozen": "an entry with an older count takes no write below frozen_slots",
	"in-place-needs-count":
	"an in-place write copies a block with an older count, above frozen_slots too",
	"marks-read-again": "in-place writes read the freeze marks again once the word is open",
	"append-above-length":
	"what is written with the word idle lies at or above the committed length",
	"foreign-untouched": "a block with freeze count 0 is never written",
	"fork-entries-zero": "a fork's entries carry freeze count 0",
	"fork-raises-marks": "a local fork raises its parent's marks as a freeze does",
	"references-counted": "a block shared by local forks leaves with its last reference",
	"own-blocks-counted":
	"a fork through the core counts the blocks in it that are granted to its session",
	"reuse-checked": "a block that left a table is reused only if no freeze has covered it",
	"reuse-after-swap": "the freeze count for that check is read after the committing swap",
	"leaves-after-swap": "a block goes back to the core only after the swap that took it out",
	"released-once":
	"a block that waits for its way back to the core is not put on the list again",
	"stamps-cleared": "stamps of an abandoned update are cleared before the next",
	"older-copy-filled": "an update fills the copy that does not count",
	"update-goes-up": "a rollback is an update of its own; the number never goes down",
	"begin-checked":
	"a writer looks at the word again between reading its header and writing by it",
	"moved-refused": "an update that began at another number than the word's is refused",
	"acts-under-hold": "the core acts only under a hold",
	"all-held-at-once": "a command over several writers holds all before it acts",
	"decided-completed": "a restarted core completes what its log says was decided",
	"decided-once":
	"a restarted core redoes a decided command only where the word is still held",
	"held-let-go": "a restarted core lets go of what was held",
	"answers-kept": "a command sent again is answered from the log",
	"rows-put-back": "the core puts a dead writer's rows back",
	"rows-newest-first": "rows are put back newest first",
	"rows-only-own": "rows are put back only into blocks that were written in place",
	"rows-end-with-bound":
	"an update that is abandoned lowers the end of the rows to the header's bound",
	"rows-end-first": "the end of the rows is raised before the first slot is overwritten",
	"rows-end-installed": "a place that gets a sequence gets the end of its rows",
	"rows-below-length": "a row whose slot is above the length is not put back",
	"journal-at-next":
	"rows behind the bound are looked up by the entries of the update in flight",
	"journal-entry-first":
	"entries of new journal blocks are filled before the end of the rows is raised",
	"open-put-back": "rows are put back only where the word was open",
	"marks-of-all": "the freeze marks of all sequences of an update are read again",
	"copy-takes-appended": "a copy takes what this update has appended to the block",
	"abandon-bumps": "an update that was abandoned in place raises the generation",
	"decided-stored": "a rollback through rows is decided",
	"decided-first": "it is decided before the first slot is put back",
	"decided-after-fill": "it is decided after its entries and headers are filled",
	"decided-finished": "the core finishes what a dead writer had decided",
	"decided-by-number": "decided is only the update after the committed one",
	"decided-releases": "order: what was decided is there before the decision",
	"decided-fence": "order: the decision comes before the first slot that is put back",
	"back-newest-first": "a writer puts rows back newest first",
	"rows-end-kept": "a rollback keeps the end of the rows until it is committed",
	"rows-end-lowered": "after a rollback the end of the rows is lowered",
	"future-ends":
	"what went back can be applied again until a row is written, also by an update that fails",
	"frozen-rows": "a freeze raises frozen_rows of a replay journal",
	"rows-below-frozen": "no row below frozen_rows is written into a block with an older count",
	"snapshot-holds-rows": "a snapshot holds the journal blocks of its header",
	"undo-rows-private": "a snapshot has no rows of an undo journal",
	"window-fits": "a journal has no more blocks than its table has entries",
	"mode-starts-fresh": "a journal does not continue the blocks of one of another mode",
	"ring-by-rows": "a slot of a full ring is overwritten by the rules of undo",
	"frozen-each-group": "a freeze raises frozen_slots of each layer group",
	"fold-copies": "a fold copies blocks of the base, the writer's own too",
	"versions-kept": "versions of the planes are kept as long as a step needs them",
	"version-fresh": "a version of the planes gets a block of its own",
	"parked-pinned": "a parked sequence pins its blocks",
	"pin-outlives-parent": "a pin lasts until the last local fork of its sequence is gone",
	"header-names-sequence":
	"a header names its sequence: its place may be used again before the core knows",
	"place-cleared": "a place filled from outside its writer's word has no other stamps",
	"marks-above-count": "a mark is written above the committed number of marks",
	"marks-dropped": "a rollback drops the marks it passes",
	"commit-releases": "order: the committing swap is a release",
	"open-acquires": "order: the opening swap is an acquire",
	"hold-acquires": "order: the swap or load that finds the hold is an acquire",
	"letting-go-releases": "order: the swap that lets go is a release",
	"begin-acquires": "order: the load of the word that begins an update is an acquire",
	"open-fence": "order: release fence between the opening swap and what is written under it",
	"reader-acquires": "order: a reader's first load of the word is an acquire",
	"reader-fence": "order: acquire fence before a reader's second load of the word",
	"row-release": "order: a row is complete before it is counted",
	"row-fence": "order: a row is counted before its slot is overwritten",
	"abandon-orders":
	"order: abandoned in place: slots back, the end of the rows lowered, stamps cleared",
	"idle-before-cleared":
	"order: a dead writer's word is idle, and its rows are back, before a stamp is cleared",
	"log-releases": "order: a log record comes after all that it tells of",
}


class Rules:
	"""All rules, less those broken on purpose."""
	def __init__(self, broken=()):
		unknown = set(broken) - set(RULES)
		if unknown:
			raise ValueError("no such rule: %s" % ", ".join(sorted(unknown)))
		self.broken = frozenset(broken)

	def __call__(self, name):
		assert name in RULES, name
		return name not in self.broken
