/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_checkpoint.h"

#include <cstring>
#include <fmt/format.h>
#include <optional>

namespace cxlkv {

namespace {

uint32_t bitmap_words(uint32_t nr)
{
	return (nr + 31) / 32;
}

class Writer {
public:
	template <typename T> void put(const T &value)
	{
		auto *bytes = reinterpret_cast<const std::byte *>(&value);
		out_.insert(out_.end(), bytes, bytes + sizeof(value));
	}
	std::vector<std::byte> take() { return std::move(out_); }

private:
	std::vector<std::byte> out_;
};

/* Reads past the end give nothing and are remembered. */
class Reader {
public:
	explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
	template <typename T> T get()
	{
		T value{};
		if (bytes_.size() < sizeof(value)) {
			short_ = true;
			return value;
		}
		memcpy(&value, bytes_.data(), sizeof(value));
		bytes_ = bytes_.subspan(sizeof(value));
		return value;
	}
	[[nodiscard]] bool ran_short() const { return short_; }
	[[nodiscard]] size_t left() const { return bytes_.size(); }

private:
	std::span<const std::byte> bytes_;
	bool short_ = false;
};

void put_segment(Writer &out, const Segment &segment, uint32_t number)
{
	out.put(disk::SegmentRecord{number, segment.used_bytes,
				    static_cast<uint32_t>(segment.extents.size()),
				    segment.evacuate ? disk::kEvacuate : 0});
	for (const ExtentEntry &e : segment.extents) {
		out.put(disk::ExtentRecord{e.arena, e.version, e.first, e.generation, e.block_bytes,
					   e.offset, e.nr, e.format});
		std::vector<uint32_t> live(bitmap_words(e.nr));
		for (uint32_t i = 0; i < e.nr; i++) {
			const BlockEntry &block = segment.blocks[e.first_slot + i];
			out.put(block.crc);
			live[i / 32] |= uint32_t{block.live} << i % 32;
		}
		for (uint32_t word : live)
			out.put(word);
	}
}

/* True when the extent can be where the record says. */
bool possible(const disk::ExtentRecord &r, uint32_t used_bytes)
{
	uint64_t bytes = uint64_t{r.nr} * r.block_bytes + 2 * disk::kPage;

	return r.nr > 0 && r.nr <= disk::kMaxBlocks && r.block_bytes > 0 &&
	       r.block_bytes % disk::kPage == 0 && r.offset % disk::kPage == 0 &&
	       r.offset <= used_bytes && bytes <= used_bytes - r.offset &&
	       r.first + (r.nr - 1) >= r.first;
}

const char *get_segment(Reader &in, const disk::SegmentRecord &record, DecodedCheckpoint &out)
{
	bool cut = record.segment >= out.table.size();
	Segment *segment = cut ? nullptr : &out.table.at(record.segment);

	if (record.used_bytes > out.table.segment_bytes() ||
	    record.nr_extents > out.table.segment_bytes() / disk::kPage)
		return "a segment is longer than it can be";
	if (segment && (segment->used_bytes || !segment->extents.empty()))
		return "a segment is there twice";
	if (segment)
		segment->used_bytes = record.used_bytes;
	if (segment && record.used_bytes && record.flags & disk::kEvacuate)
		out.table.mark_evacuate(record.segment);
	for (uint32_t n = 0; n < record.nr_extents; n++) {
		auto r = in.get<disk::ExtentRecord>();
		if (in.ran_short() || !possible(r, record.used_bytes))
			return "an extent is impossible";
		std::vector<uint32_t> crc(r.nr);
		for (uint32_t &one : crc)
			one = in.get<uint32_t>();
		uint32_t slot = 0;
		if (!cut)
			slot = out.table.add(record.segment,
					     {r.arena, r.version, r.first, r.generation,
					      r.block_bytes, r.offset, 0, r.nr, r.format},
					     crc.data());
		for (uint32_t i = 0; i < r.nr; i += 32) {
			auto word = in.get<uint32_t>();
			for (uint32_t bit = 0; bit < 32 && i + bit < r.nr; bit++) {
				if (!(word >> bit & 1))
					continue;
				if (cut)
					out.nr_cut++;
				else
					out.table.set_live({record.segment, slot + i + bit});
			}
		}
	}
	return in.ran_short() ? "it ends early" : nullptr;
}

/* A segment that shall be written next must be empty. */
bool free_is_empty(const disk::CheckpointHeader &header, const SegmentTable &table)
{
	for (uint32_t number : table.list_free()) {
		if (table.at(number).used_bytes || !table.at(number).extents.empty() ||
		    number == header.open_segment[0] || number == header.open_segment[1])
			return false;
	}
	return true;
}

const char *get_free(Reader &in, const disk::CheckpointHeader &header, SegmentTable &table)
{
	std::deque<uint32_t> free;
	std::vector<bool> seen(header.nr_segments);

	for (uint32_t i = 0; i < header.nr_free; i++) {
		auto entry = in.get<uint32_t>();
		uint32_t number = entry & ~disk::kUnwiped;
		if (in.ran_short() || number >= header.nr_segments || seen[number])
			return "the list of free segments is impossible";
		seen[number] = true;
		if (number >= table.size())
			continue;
		table.at(number).unwiped = entry & disk::kUnwiped;
		free.push_back(number);
	}
	/* Segments that the store has grown by come last. */
	for (uint32_t i = header.nr_segments; i < table.size(); i++)
		free.push_back(i);
	table.restore_free(std::move(free));
	return nullptr;
}

} // namespace

EncodedCheckpoint encode_checkpoint(const disk::Superblock &super, const SegmentTable &table,
				    const LogPosition &position)
{
	EncodedCheckpoint out{};
	Writer payload;

	for (uint32_t i = 0; i < table.size(); i++)
		payload.put(table.at(i).life);
	auto free = table.list_free();
	for (uint32_t number : free)
		payload.put(number | (table.at(number).unwiped ? disk::kUnwiped : 0));
	for (uint32_t i = 0; i < table.size(); i++) {
		auto state = table.at(i).state;
		if (state != Segment::State::Open && state != Segment::State::Closed)
			continue;
		put_segment(payload, table.at(i), i);
		out.header.nr_used++;
	}
	out.payload = payload.take();
	out.header.magic = disk::kCheckpointMagic;
	out.header.payload_crc = disk::crc32c(0, out.payload);
	out.header.store_id = super.store_id;
	out.header.number = position.checkpoint;
	out.header.seq = position.seq;
	out.header.version = position.version;
	out.header.payload_bytes = out.payload.size();
	out.header.in_flight_bytes = position.in_flight_bytes;
	out.header.nr_segments = table.size();
	out.header.nr_free = static_cast<uint32_t>(free.size());
	std::copy(table.open().begin(), table.open().end(), out.header.open_segment);
	disk::seal(out.header);
	out.payload.resize((out.payload.size() + disk::kPage - 1) / disk::kPage * disk::kPage);
	return out;
}

uint64_t checkpoint_bytes(const SegmentTable &table)
{
	return 2 * disk::kPage +
	       table.size() * (2 * sizeof(uint32_t) + sizeof(disk::SegmentRecord)) +
	       table.nr_extents() * (sizeof(disk::ExtentRecord) + sizeof(uint32_t)) +
	       table.nr_slots() * sizeof(uint32_t) + table.nr_slots() / 8;
}

Result<DecodedCheckpoint> decode_checkpoint(const disk::Superblock &super,
					    const disk::CheckpointHeader &header,
					    std::span<const std::byte> payload,
					    uint32_t nr_segments, uint32_t nr_there)
{
	DecodedCheckpoint out;
	Reader in(payload);
	const char *wrong = nullptr;

	/* Each segment has at least its life in the payload, which bounds what is allocated below.
	 */
	if (header.nr_segments > payload.size() / sizeof(uint32_t) ||
	    header.nr_free > header.nr_segments || header.nr_used > header.nr_segments)
		return error(EBADMSG, "checkpoint: more segments than it can hold");
	nr_segments = std::max(nr_segments, std::min(header.nr_segments, nr_there));
	out.position = {header.seq, header.version, header.number, header.in_flight_bytes};
	out.table = SegmentTable(nr_segments, static_cast<uint32_t>(super.segment_bytes));
	for (uint32_t i = 0; i < header.nr_segments; i++) {
		auto life = in.get<uint32_t>();
		if (i < nr_segments)
			out.table.at(i).life = life;
	}
	wrong = get_free(in, header, out.table);
	for (uint32_t i = 0; !wrong && i < header.nr_used; i++) {
		auto record = in.get<disk::SegmentRecord>();
		wrong = record.segment < header.nr_segments ? get_segment(in, record, out)
							    : "no such segment";
	}
	if (!wrong && in.left())
		wrong = "it goes on after its end";
	if (!wrong && !free_is_empty(header, out.table))
		wrong = "a segment is both free and in use";
	if (!wrong && header.open_segment[0] < nr_segments &&
	    header.open_segment[0] == header.open_segment[1])
		wrong = "a segment is open twice";
	if (wrong)
		return error(EBADMSG, std::string("checkpoint: ") + wrong);
	OpenSegments open = kNoneOpen;
	for (uint32_t i = 0; i < disk::kNrEnds; i++) {
		if (header.open_segment[i] < nr_segments)
			open[i] = header.open_segment[i];
	}
	out.table.restore_open(open);
	out.table.settle();
	return out;
}

namespace {

struct CheckpointBytes {
	disk::CheckpointHeader header;
	AlignedBuffer bytes;

	[[nodiscard]] std::span<const std::byte> payload() const
	{
		return {bytes.get(), header.payload_bytes};
	}
};

std::optional<disk::CheckpointHeader>
read_header(const StoreFile &file, const disk::Superblock &super, uint64_t number, uint32_t copy)
{
	AlignedBuffer page = aligned_buffer(disk::kPage);
	disk::CheckpointHeader header;

	if (!file.read(super.checkpoint_offset(number, copy), {page.get(), disk::kPage}))
		return {};
	memcpy(&header, page.get(), sizeof(header));
	return intact(header, super) ? std::optional(header) : std::nullopt;
}

std::optional<CheckpointBytes> read_copy(const StoreFile &file, const disk::Superblock &super,
					 uint64_t number, uint32_t copy)
{
	auto header = read_header(file, super, number, copy);
	if (!header || header->number != number)
		return {};
	uint64_t whole = (header->payload_bytes + disk::kPage - 1) / disk::kPage * disk::kPage;
	CheckpointBytes out{*header, aligned_buffer(std::max<uint64_t>(whole, disk::kPage))};
	uint64_t offset = super.checkpoint_offset(number, copy) + disk::kPage;
	if (!out.bytes || !file.read(offset, {out.bytes.get(), whole}))
		return {};
	if (disk::crc32c(0, out.payload()) != header->payload_crc)
		return {};
	return out;
}

} // namespace

bool checkpoint_copy_is_whole(const StoreFile &file, const disk::Superblock &super, uint64_t number,
			      uint32_t copy)
{
	return read_copy(file, super, number, copy).has_value();
}

Result<DecodedCheckpoint> load_checkpoint(const StoreFile &file, const disk::Superblock &super,
					  uint32_t nr_segments, uint32_t nr_there)
{
	std::optional<uint64_t> newest;

	for (uint64_t slot = 0; slot < 2; slot++) {
		for (uint32_t copy = 0; copy < 2; copy++) {
			auto header = read_header(file, super, slot, copy);
			if (header)
				newest = std::max(newest.value_or(0), header->number);
		}
	}
	/* An older one must not serve: segments it believes in may have been used again since. */
	for (uint32_t copy = 0; newest && copy < 2; copy++) {
		if (auto found = read_copy(file, super, *newest, copy))
			return decode_checkpoint(super, found->header, found->payload(),
						 nr_segments, nr_there);
	}
	return error(EBADMSG, "no checkpoint is whole");
}

} // namespace cxlkv
