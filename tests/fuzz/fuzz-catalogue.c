/*
 * A damaged catalogue, and one whose records are whole but say something that cannot be.
 *
 * The input is a list of edits {kind 1 byte, record 1 byte, offset 2 bytes, value 8 bytes} of the
 * catalogue of a core that has something in it (world.h); offset and value are little-endian:
 *	0   stores the value in the payload; 1: its first 4 bytes; the checksum is made right
 *	2   stores the value in the record, checksum and head included
 *	3   the record is there once more, at the end
 *	4   the record is of another type
 *	5   the end is elsewhere: offset bytes before
 *	6   the payload has as many bytes as the offset says, and the record goes to the end
 *	7   stores the value in the catalogue's head
 * Whatever it says: the next core takes it up or starts empty, and then serves. Thread: one.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "tests/fuzz/target.h"
#include "tests/fuzz/world.h"

#define EDITS_MAX 32
#define ROOM_BYTES (1u << 18) /* that a catalogue takes at first */

static void seal(struct cat_record *record)
{
	record->checksum = XXH64(&record->magic,
				 sizeof(*record) - sizeof(record->checksum) + record->n_bytes, 0);
}

static uint64_t padded(uint64_t n)
{
	return (n + 7) & ~UINT64_C(7);
}

static struct cat_head *head_of(char *base)
{
	return (void *)base;
}

/* Record number i, counted round; NULL when the log cannot be walked any more. */
static struct cat_record *record_at(char *base, unsigned i)
{
	uint64_t end = head_of(base)->end_off, off = CAT_HEAD_BYTES;
	struct cat_record *record = NULL;

	if (end > ROOM_BYTES)
		return NULL;
	do {
		if (off + sizeof(*record) > end)
			off = CAT_HEAD_BYTES;
		record = (void *)(base + off);
		if (off + sizeof(*record) > end || off + sizeof(*record) + record->n_bytes > end)
			return NULL;
		off += sizeof(*record) + padded(record->n_bytes);
	} while (i-- > 0);
	return record;
}

static void append(char *base, const struct cat_record *record, uint32_t n_bytes)
{
	uint64_t end = head_of(base)->end_off;
	uint32_t n = n_bytes < record->n_bytes ? n_bytes : record->n_bytes;
	struct cat_record *copy = (void *)(base + end);

	if (end % 8 || end + sizeof(*copy) + padded(n_bytes) > ROOM_BYTES)
		return;
	memset((void *)copy, 0, sizeof(*copy) + padded(n_bytes));
	memcpy((void *)copy, record, sizeof(*copy) + n);
	copy->n_bytes = n_bytes;
	seal(copy);
	head_of(base)->end_off = end + sizeof(*copy) + padded(n_bytes);
}

static void store(void *at, uint32_t offset, uint64_t n_bytes, const void *value, uint64_t n)
{
	if (n_bytes >= n)
		memcpy((char *)at + offset % (n_bytes - n + 1), value, n);
}

static void edit(char *base, const uint8_t *bytes)
{
	struct cat_record *record = record_at(base, bytes[1]);
	uint32_t offset = bytes[2] | (uint32_t)bytes[3] << 8;
	uint64_t n = record ? record->n_bytes : 0;

	if (!record)
		return;
	switch (bytes[0]) {
	case 0: store(record + 1, offset, n, bytes + 4, 8); break;
	case 1: store(record + 1, offset, n, bytes + 4, 4); break;
	case 2: store(record, offset, sizeof(*record) + n, bytes + 4, 8); return;
	case 3: append(base, record, record->n_bytes); return;
	case 4: record->type = (uint16_t)offset; break;
	case 5: head_of(base)->end_off -= offset; return;
	case 6: append(base, record, offset); return;
	case 7: store(base, offset, 24, bytes + 4, 8); return;
	default: return;
	}
	seal(record);
}

static void edit_all(struct fake_core *f, const uint8_t *data, size_t size)
{
	char *base = NULL;

	for (size_t i = 0; i < f->n_kept; i++)
		if (f->kept[i].kind == KEPT_CATALOGUE)
			base = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				    f->kept[i].fd, 0);
	must(base && base != MAP_FAILED);
	for (int i = 0; i < EDITS_MAX && size >= 12; i++, data += 12, size -= 12)
		edit(base, data);
	munmap(base, ROOM_BYTES);
}

/* ---- afterwards --------------------------------------------------------------------------- */

static Kv__Wire__Target *named(const char *name)
{
	static Kv__Wire__Target target;

	kv__wire__target__init(&target);
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)name;
	return &target;
}

static void say(struct world *w, Kv__Wire__Request *request)
{
	request->id = 0;
	request->deadline_ms = 20;
	fake_send(w->a, request);
	w->a->acked = request->id;
	fake_settle(w->f);
}

/* A little of everything that looks at what was loaded. */
static void use(struct world *w)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__List list = KV__WIRE__LIST__INIT;
	Kv__Wire__Verify verify = KV__WIRE__VERIFY__INIT;
	Kv__Wire__Fork fork_ = KV__WIRE__FORK__INIT;
	Kv__Wire__ForkOne one = KV__WIRE__FORK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Takeover takeover = KV__WIRE__TAKEOVER__INIT;
	Kv__Wire__Remove remove_ = KV__WIRE__REMOVE__INIT;

	list.local = true;
	request.command_case = KV__WIRE__REQUEST__COMMAND_LIST;
	request.list = &list;
	say(w, &request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_VERIFY;
	request.verify = &verify;
	verify.source = named("snap");
	say(w, &request);
	verify.source = named("deep-snap");
	say(w, &request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_FORK;
	request.fork = &fork_;
	fork_.n_ones = 1;
	fork_.ones = ones;
	one.source = named("deep-snap");
	say(w, &request);
	one.source = named("seq");
	say(w, &request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_TAKEOVER;
	request.takeover = &takeover;
	takeover.name = (char *)"fork";
	say(w, &request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_REMOVE;
	request.remove = &remove_;
	remove_.source = named("snap");
	say(w, &request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *w = world_new();

	edit_all(w->f, data, size);
	must(world_restart(w));
	use(w);
	must(world_restart(w)); /* what it made of it is whole */
	use(w);
	world_free(w);
	return 0;
}
