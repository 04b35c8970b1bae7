/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Objects over a restart: written out to the spill store at the end, found again
 * at the start. The file that says which chunk is whose may be older than the
 * store, after a crash: what the store does not have is gone, and what it has of
 * another object fails its checksum when it is loaded.
 */
#include "object_thread.h"

#include "base/log.h"
#include "registry.h"

#include <algorithm>
#include <chrono>
#include <memory>

namespace cxlkv {

namespace {

constexpr uint64_t kSaveEveryNs = 10'000'000'000;
/* Spills that the store refuses are tried again for so long. */
constexpr uint64_t kNoProgressNs = 2'000'000'000;

} // namespace

/* Before any other thread runs. True: there is something, and the pool should be served. */
bool ObjectThread::recover(const SavedObjects &saved)
{
	std::vector<uint32_t> numbers;

	for (const SavedObjects::Space &space : saved.spaces) {
		auto number = find_or_make_space(space.spec, false);
		if (!number) {
			log_warning("namespace {}: {}", space.spec.name, number.error().what);
			numbers.push_back(0);
			continue;
		}
		table_.set_quota(spaces_.at(*number).tenant, space.quota_bytes);
		numbers.push_back(*number);
	}
	for (const SavedObjects::Object &object : saved.objects) {
		auto space = spaces_.find(numbers[object.space]);
		if (space == spaces_.end() || !space->second.spec.groups.count(object.group))
			continue;
		std::vector<Object::Chunk> chunks;
		for (const SavedObjects::Chunk &chunk : object.chunks)
			chunks.push_back({chunk.block, chunk.checksum});
		Object *found = table_.recover(space->first, space->second.tenant,
					       {object.key, object.group}, object.bytes, chunks);
		if (found)
			table_.set_priority(
				*found, std::min<uint8_t>(object.priority, CXL_KV_MAX_PRIORITY));
	}
	return table_.nr_objects();
}

/* The pool is served: what of it the store has is known. */
void ObjectThread::settle_recovered()
{
	size_t nr = 0;

	for (Object *object : table_.all()) {
		Space &space = spaces_.at(object->space);
		bool whole = std::ranges::all_of(object->chunks, [&](const Object::Chunk &chunk) {
			return pool_->state(chunk.block) == CXL_KV_COLD;
		});
		auto slot = space.index->insert(object->key);
		if (!slot) {
			table_.unlink(*object);
			nr_leaving_++;
			drop_if_idle(*object);
			continue;
		}
		object->slot = *slot;
		if (!whole) {
			counters_.nr_lost++;
			remove(*object, EIO);
			continue;
		}
		space.index->set_tier(*slot, CXL_KV_TIER_COLD);
		space.index->set_state(*slot, CXL_KV_INDEX_READY);
		nr++;
	}
	if (nr || counters_.nr_lost)
		log_info("{} objects are back from the spill store, {} are not", nr,
			 counters_.nr_lost);
}

SavedObjects ObjectThread::to_save(bool written_out) const
{
	SavedObjects saved;
	std::map<uint32_t, uint32_t> indices;

	saved.chunk_bytes = options_.chunk_bytes;
	saved.nr_chunks = options_.nr_chunks;
	for (const auto &[number, space] : spaces_) {
		indices[number] = static_cast<uint32_t>(saved.spaces.size());
		saved.spaces.push_back({space.spec, table_.usage(space.tenant).quota_bytes});
	}
	for (const Object *object : table_.all()) {
		if (object->state != Object::State::Ready)
			continue;
		SavedObjects::Object out{indices.at(object->space), object->key.key,
					 object->key.group,         object->bytes,
					 object->priority,          {}};
		bool cold = true;
		for (const Object::Chunk &chunk : object->chunks) {
			out.chunks.push_back({chunk.block, chunk.checksum});
			cold = cold && pool_->state(chunk.block) == CXL_KV_COLD;
		}
		if (cold || !written_out)
			saved.objects.push_back(std::move(out));
	}
	return saved;
}

/* Now and then, for the case that there is no orderly end. Not on this thread: a disk may be slow.
 */
void ObjectThread::save_sometimes()
{
	uint64_t now = monotonic_ns();
	uint64_t changes = counters_.nr_stored + counters_.nr_removed;

	if (changes == saved_changes_ || now < next_save_ns_)
		return;
	next_save_ns_ = now + kSaveEveryNs;
	saved_changes_ = changes;
	if (saver_.joinable())
		saver_.join();
	saver_ = std::thread([saved = to_save(false), path = options_.path] {
		if (auto done = save_objects(path, saved); !done)
			log_warning("objects would not survive a crash: {}", done.error().what);
	});
}

/* Chunks of finished objects that the store alone does not have, as runs. */
std::vector<Extent> ObjectThread::in_memory() const
{
	std::vector<Extent> extents;

	for (uint32_t block = 0; block < table_.nr_chunks(); block++) {
		const Object *object = table_.owner(block);
		if (!object || object->state != Object::State::Ready ||
		    pool_->state(block) == CXL_KV_COLD)
			continue;
		append(extents, {arena_->options.number, block, 1});
	}
	return extents;
}

/* Spills what is in memory, as far as store and time allow. Returns after the last answer. */
void ObjectThread::spill_all()
{
	const uint64_t end = monotonic_ns() + uint64_t{options_.write_out_ms} * 1'000'000;
	uint64_t progress = monotonic_ns();

	while (monotonic_ns() < end && monotonic_ns() < progress + kNoProgressNs) {
		Request request{};
		request.extents = in_memory();
		if (request.extents.empty())
			return;
		auto outcome = std::make_shared<std::optional<Outcome>>();
		request.kind = Request::Kind::Spill;
		request.arena = arena_;
		request.done = [this, outcome](const Outcome &o) {
			post([outcome, o] { *outcome = o; });
		};
		faults_.submit(std::move(request));
		while (!*outcome && monotonic_ns() < end) {
			wait_for_events(100);
			take_posted();
		}
		if (!*outcome)
			break;
		if ((*outcome)->nr_done)
			progress = monotonic_ns();
		else
			std::this_thread::sleep_for(std::chrono::milliseconds(10));
		if ((*outcome)->error)
			break;
	}
	log_warning("not all objects could be written to the spill store");
}

void ObjectThread::write_out()
{
	if (!arena_ || spaces_.empty())
		return;
	spill_all();
	SavedObjects saved = to_save(true);
	if (auto done = save_objects(options_.path, saved); !done)
		return log_error("objects are lost: {}", done.error().what);
	log_info("{} objects stay in the spill store", saved.objects.size());
}

} // namespace cxlkv
