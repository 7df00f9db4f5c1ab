/*
 * The command table. Parser, help, completion and the test of the man page read it.
 */
#include <stddef.h>

#include "client/ctl/ctl.h"
#include "proto/limits.h"

#define MANY ((int)KV_TARGETS_MAX)
#define END \
	{ \
		NULL, NULL, NULL, CTL_NOTHING \
	}

static const struct ctl_option ls_options[] = {
	{"names", NULL, "print names only, one a line", CTL_NOTHING}, END};
static const struct ctl_option snapshot_options[] = {
	{"replace", NULL, "replace what has the name already", CTL_NOTHING}, END};
static const struct ctl_option fork_options[] = {
	{"max-tokens", "N", "most tokens the new sequence can hold", CTL_NOTHING}, END};
static const struct ctl_option rollback_options[] = {
	{"keep", "N", "keep the first N tokens", CTL_NOTHING},
	{"remove", "N", "remove the last N tokens", CTL_NOTHING},
	{"steps", "N", "go back N steps of the journal", CTL_NOTHING},
	{"mark", "MARK", "go back to the mark with this number", CTL_NOTHING},
	END};
static const struct ctl_option journal_options[] = {
	{"mode", "MODE", "begin or end a journal: undo, replay or none", CTL_NOTHING}, END};
static const struct ctl_option mark_options[] = {
	{"list", NULL, "list the marks instead", CTL_NOTHING},
	{"release", "MARK", "release this mark and those after it instead", CTL_NOTHING},
	END};
static const struct ctl_option replay_options[] = {
	{"onto", "OBJECT", "sequence that the steps are applied to", CTL_NOTHING},
	{"steps", "N", "only the first N", CTL_NOTHING},
	END};
static const struct ctl_option fold_options[] = {
	{"keep-rows", "N", "leave the newest N rows, and their whole step (0)", CTL_NOTHING}, END};
static const struct ctl_option convert_options[] = {
	{"format", "K[:V]", "raw, int8, u8, u4, q4, fp8 or int8-model; of K and V", CTL_NOTHING},
	{"block-tokens", "N", "slots of a block", CTL_NOTHING},
	END};
static const struct ctl_option diff_options[] = {
	{"lines", "N", "most places to print (40)", CTL_NOTHING}, END};
static const struct ctl_option size_options[] = {
	{"tokens", "N", "tokens of the sequence", CTL_NOTHING},
	{"layers", "N", "layers of the model", CTL_NOTHING},
	{"heads", "N", "key/value heads of a layer", CTL_NOTHING},
	{"width", "N", "elements of a key", CTL_NOTHING},
	{"v-width", "N", "elements of a value (as of a key)", CTL_NOTHING},
	{"bound", "N", "most slots of a layer (no bound)", CTL_NOTHING},
	{"dtype", "D", "f32, f16 or bf16 (bf16)", CTL_NOTHING},
	{"format", "K[:V]", "as of convert (raw)", CTL_NOTHING},
	{"block-tokens", "N", "slots of a block (chosen)", CTL_NOTHING},
	{"planes", "LIST", "NAME:slot:BYTES,NAME:sequence:BYTES,...", CTL_NOTHING},
	END};
static const struct ctl_option verify_options[] = {
	{"all", NULL, "every snapshot, and every sequence without a writer", CTL_NOTHING}, END};

static const struct ctl_option save_options[] = {
	{"as", "NAME", "name of what is saved (that of the object)", CTL_NOTHING},
	{"replace", NULL, "replace what is saved by that name already", CTL_NOTHING},
	END};
static const struct ctl_option load_options[] = {
	{"as", "NAME", "name of what is made (that of what was saved)", CTL_NOTHING},
	{"replace", NULL, "replace what has the name already", CTL_NOTHING},
	{"tokens", "N", "only the first N tokens", CTL_NOTHING},
	END};

static const struct ctl_option demo_options[] = {
	{"model", "FILE", "weights (kjv-3m.safetensors)", CTL_FILES},
	{"draft", "FILE", "weights of the draft model (kjv-draft.safetensors)", CTL_FILES},
	{"tokenizer", "FILE", "merges of the tokenizer (tokenizer.txt)", CTL_FILES},
	{"prompt", "FILE", "text of the prompt (prompt.txt)", CTL_FILES},
	{"tokens", "N", "tokens that each process samples (200)", CTL_NOTHING},
	{"keep", NULL, "leave prompt, forks and private daemon there", CTL_NOTHING},
	{"flip-bit", "TOKEN", "testing aid: damage this token; the demo must fail", CTL_NOTHING},
	END};
static const struct ctl_option bench_options[] = {
	{"rounds", "N", "repetitions of each (1000)", CTL_NOTHING}, END};
static const struct ctl_option bench_attend_options[] = {
	{"tokens", "N", "tokens in the cache (32768)", CTL_NOTHING},
	{"heads", "N", "key/value heads (8)", CTL_NOTHING},
	{"group", "N", "query heads of each (4)", CTL_NOTHING},
	{"width", "N", "elements of a key and of a value (128)", CTL_NOTHING},
	{"format", "LIST", "formats, as of convert, with commas (all)", CTL_NOTHING},
	{"threads", "N", "threads that attend (1)", CTL_NOTHING},
	END};

const struct ctl_command ctl_commands[] = {
	{"status", "", "Show the daemon, its memory and what it holds", "", NULL, 0, 0, CTL_NOTHING,
	 cmd_status},
	{"ls", "[PREFIX]", "List sequences, snapshots and local forks",
	 "SHARED is the part of SIZE that lies in blocks which something else uses too.\n"
	 "PREFIX lists only objects whose names begin so.",
	 ls_options, 0, 1, CTL_NAMES, cmd_ls},
	{"show", "OBJECT...", "Show everything about objects",
	 "OBJECT is a name, or @N for the object with number N (see ls).", NULL, 1, MANY, CTL_NAMES,
	 cmd_show},
	{"tree", "[OBJECT]", "Draw who was forked from whom",
	 "OWN is memory that nothing else uses. With OBJECT, only it and what came\n"
	 "from it.",
	 NULL, 0, 1, CTL_NAMES, cmd_tree},
	{"snapshot", "OBJECT NAME [OBJECT NAME]...", "Take named snapshots, all or none",
	 "Writers that are at work go on; no data is copied.", snapshot_options, 2, 2 * MANY,
	 CTL_NAMES, cmd_snapshot},
	{"fork", "OBJECT NAME [OBJECT NAME]...", "Make new sequences that share blocks",
	 "The new sequence has no writer: a process takes it over (kvc_takeover).", fork_options, 2,
	 2 * MANY, CTL_NAMES, cmd_fork},
	{"rollback", "OBJECT...", "Take sequences back to a shorter length, all or none",
	 "One of --keep, --remove, --steps and --mark is needed. A writer that is at work\n"
	 "is told by its next commit (KVC_EMOVED). With an undo journal, and to marks and\n"
	 "steps, only sequences without writer go back.",
	 rollback_options, 1, MANY, CTL_NAMES, cmd_rollback},
	{"journal", "OBJECT", "Show a journal, or set its mode",
	 "The mode can be changed while there are no rows and no marks, of a sequence\n"
	 "without writer.",
	 journal_options, 1, 1, CTL_NAMES, cmd_journal},
	{"mark", "OBJECT", "Set, list or release marks",
	 "OBJECT is a sequence without writer. A mark is a point to go back to (rollback\n"
	 "--mark); it is gone when it is released or a rollback goes past it.",
	 mark_options, 1, 1, CTL_NAMES, cmd_mark},
	{"replay", "OBJECT", "Apply the steps of a replay journal elsewhere",
	 "OBJECT is a snapshot or a sequence without writer; the other one is a fork of\n"
	 "the same base, without writer, where OBJECT's journal begins.",
	 replay_options, 1, 1, CTL_NAMES, cmd_replay},
	{"fold", "OBJECT", "Turn rows of a replay journal into blocks",
	 "OBJECT is a sequence without writer. Snapshots and forks keep what they have.",
	 fold_options, 1, 1, CTL_NAMES, cmd_fold},
	{"convert", "OBJECT NAME", "Make the same tokens in another format",
	 "OBJECT is a snapshot or a sequence without writer, and stays. The new sequence\n"
	 "has no writer and shares nothing.",
	 convert_options, 2, 2, CTL_NAMES, cmd_convert},
	{"diff", "OBJECT OBJECT", "Show where two sequences or snapshots differ",
	 "Both have one layout and no writer. Exit code 1 if they differ.", diff_options, 2, 2,
	 CTL_NAMES, cmd_diff},
	{"size", "[OBJECT]", "Say what a sequence takes, by part",
	 "Of the layout of OBJECT, or of a geometry that options name: --layers, --heads,\n"
	 "--width and --tokens are needed then, and no daemon is asked.",
	 size_options, 0, 1, CTL_NAMES, cmd_size},
	{"rm", "OBJECT...", "Remove snapshots, and sequences without a writer",
	 "Forks and open handles keep the blocks that they use. One after the other: what\n"
	 "cannot be removed is named, the rest goes.",
	 NULL, 1, MANY, CTL_NAMES, cmd_rm},
	{"verify", "[OBJECT]...", "Read stored bytes and compare their digests",
	 "Blocks whose digest is not known yet are learnt: they can be compared the next\n"
	 "time. Exit code 4 if a block is not what it was.",
	 verify_options, 0, MANY, CTL_NAMES, cmd_verify},
	{"save", "OBJECT...", "Save snapshots and sequences to the disk pool",
	 "Saved ones have names of their own and outlive the daemon and the machine, whole\n"
	 "or not at all. What is being written is saved as a snapshot of now, a sequence\n"
	 "without writer as a sequence. What cannot be saved is named, the rest is.",
	 save_options, 1, MANY, CTL_NAMES, cmd_save},
	{"load", "NAME...", "Load what was saved back into memory",
	 "It is there once every byte has been compared with its checksum and the whole\n"
	 "with its digest. Exit code 4 if something is damaged: nothing is loaded then,\n"
	 "and what was saved with the damaged block is set aside.",
	 load_options, 1, MANY, CTL_SAVED, cmd_load},
	{"saved ls", "[PREFIX]", "List what is saved",
	 "PREFIX lists only those whose names begin so. AGE is that of the save.", ls_options, 0, 1,
	 CTL_SAVED, cmd_saved_ls},
	{"saved rm", "NAME...", "Remove what is saved",
	 "What was loaded from it stays. What cannot be removed is named, the rest goes.", NULL, 1,
	 MANY, CTL_SAVED, cmd_saved_rm},
	{"store check", "", "Read all of the disk pool and compare checksums",
	 "For root and the daemon's own user. Exit code 4 if something is damaged.", NULL, 0, 0,
	 CTL_NOTHING, cmd_store_check},
	{"store repair", "", "The same, and set aside what is damaged",
	 "What was saved with damaged blocks is not found any more; its files stay, with\n"
	 ".damaged behind their names. Exit code 4 if there was damage.",
	 NULL, 0, 0, CTL_NOTHING, cmd_store_repair},
	{"store stats", "", "Show the disk pool and what it has transferred", "", NULL, 0, 0,
	 CTL_NOTHING, cmd_store_stats},
	{"session ls", "", "List attached processes", "", NULL, 0, 0, CTL_NOTHING, cmd_session_ls},
	{"session end", "SESSION...", "End sessions, with all that they hold unnamed",
	 "The memory that the process could write is free once the process has gone.", NULL, 1,
	 MANY, CTL_NOTHING, cmd_session_end},
	{"demo", "", "Show one prompt used by several processes, and prove it",
	 "Starts a private daemon with a pool of 256 MiB, unless --runtime-dir is given,\n"
	 "and leaves nothing behind. First a raw cache, then one in 8 bits with replay\n"
	 "journals over it and a table of all formats; then decoding with drafts of a\n"
	 "small model, and caches with a quarter of the slots. Last, the prompt is saved\n"
	 "to disk, everything is stopped, and a new daemon loads it (not with\n"
	 "--runtime-dir). Exit code 4 if a bit differs from processes that work alone,\n"
	 "without drafts, or before the restart.",
	 demo_options, 0, 0, CTL_NOTHING, cmd_demo},
	{"bench", "", "Measure round trip, commit, rollback, snapshot, fork on this machine", "",
	 bench_options, 0, 0, CTL_NOTHING, cmd_bench},
	{"bench attend", "", "Measure attention over each format on this machine",
	 "One token's step over one layer, in turns with a plain read of the same bytes:\n"
	 "RATIO is how many times as long it takes. PEAK MEMORY is that of the process\n"
	 "with the cache. The daemon's pool must have room for one cache at a time.",
	 bench_attend_options, 0, 0, CTL_NOTHING, cmd_bench_attend},
	{"completion", "", "Print the bash completion", "", NULL, 0, 0, CTL_NOTHING,
	 cmd_completion},
	{NULL, NULL, NULL, NULL, NULL, 0, 0, CTL_NOTHING, NULL}};
