/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What each item of work does. A step runs to a result, or leaves the item
 * waiting for an object or for room; then it is stepped again from the start.
 */
#include "object_thread.h"

#include "registry.h"

#include <algorithm>
#include <isa-l/crc64.h>
#include <unistd.h>

namespace cxlkv {

namespace {

/* Begins with the key, so that no other object's bytes pass for this one's. */
uint64_t checksum(const ObjectKey &key, std::span<const std::byte> bytes)
{
	return crc64_ecma_refl(key.hash(), reinterpret_cast<const uint8_t *>(bytes.data()),
			       bytes.size());
}

bool here(cxl_kv_state state)
{
	return state == CXL_KV_RESIDENT || state == CXL_KV_SPILLING;
}

/* Whole system calls, or an errno. */
int read_file(int fd, uint64_t at, std::span<std::byte> into)
{
	ssize_t nr = pread(fd, into.data(), into.size(), static_cast<off_t>(at));
	return nr < 0 ? errno : static_cast<size_t>(nr) == into.size() ? 0 : EFAULT;
}

int write_file(int fd, uint64_t at, std::span<const std::byte> from)
{
	ssize_t nr = pwrite(fd, from.data(), from.size(), static_cast<off_t>(at));
	return nr < 0 ? errno : static_cast<size_t>(nr) == from.size() ? 0 : EFAULT;
}

bool writes(const Object &object, const Work &work)
{
	return object.pending() && object.client == work.connection &&
	       (!object.job || object.job == work.item.job);
}

} // namespace

std::optional<int> ObjectThread::step(Work &work)
{
	if (work.item.op == CXL_KV_ITEM_CANCEL)
		return cancel(work);
	/* Closed while the item waited, and then replaced by another client. */
	if (!spaces_.contains(work.item.ns))
		return -ENOENT;
	if (work.item.op == CXL_KV_ITEM_RESET)
		return static_cast<int>(empty_space(work.item.ns));
	if (work.item.op == CXL_KV_ITEM_QUOTA) {
		table_.set_quota(spaces_.at(work.item.ns).tenant, work.item.value);
		return 0;
	}
	if (work.item.op == CXL_KV_ITEM_LOAD)
		return load(work);
	if (work.item.op == CXL_KV_ITEM_STORE)
		return store(work);
	if (work.item.op == CXL_KV_ITEM_HELD || work.item.op == CXL_KV_ITEM_ADVICE_END)
		return tell_tier(work);
	Object *object = table_.find(work.item.ns, key_of(work.item));
	if (work.item.op == CXL_KV_ITEM_TOUCH || work.item.op == CXL_KV_ITEM_SCORE)
		return use(work, object);
	if (work.item.op == CXL_KV_ITEM_RESERVE)
		return object ? -EEXIST : reserve(work, &object);
	if (!object)
		return -ENOENT;
	if (work.item.op == CXL_KV_ITEM_COMMIT)
		return commit(work, object);
	if (work.item.op == CXL_KV_ITEM_ABORT)
		return abort(work, object);
	return change(work, object);
}

/* ---- stores ---- */

std::optional<int> ObjectThread::reserve(Work &work, Object **out)
{
	const cxl_kv_item &item = work.item;
	Space &space = spaces_.at(item.ns);
	const ObjectKey key = key_of(item);
	auto group = space.spec.groups.find(item.group);

	if (group == space.spec.groups.end())
		return -EINVAL;
	Object *object = nullptr;
	int error = table_.reserve(item.ns, space.tenant, key, group->second, &object);
	if (error == ENOSPC || error == EDQUOT) {
		if (!make_room(error == EDQUOT ? space.tenant : 0, group->second))
			return -error;
		want_room_.push_back(work.id);
		return {};
	}
	if (error)
		return -error;
	auto slot = space.index->insert(key);
	if (!slot) {
		table_.release(*object);
		return -ENOSPC;
	}
	object->slot = *slot;
	object->client = work.connection;
	object->job = item.op == CXL_KV_ITEM_STORE ? item.job : 0;
	object->deadline_ns = item.deadline_ns;
	reservation_timers_.insert({object->deadline_ns, object->id});
	/* The lease comes first: what is made under it cannot be spilled before it is written. */
	hold(*object);
	start_make(*object);
	*out = object;
	return 0;
}

std::optional<int> ObjectThread::store(Work &work)
{
	const cxl_kv_item &item = work.item;
	Object *object = table_.find(item.ns, key_of(item));

	if (!buffer_of(work))
		return -EINVAL;
	if (!object) {
		/* The one it was for is gone, or there never was one. */
		if (work.object || !(item.flags & CXL_KV_ITEM_FIRST))
			return -ENOENT;
		auto reserved = reserve(work, &object);
		if (!reserved || *reserved)
			return reserved;
	}
	if (!writes(*object, work))
		return -EEXIST;
	work.object = object->id;
	if (uint64_t{item.offset} + item.bytes > object->bytes)
		return -EINVAL;
	if (object->state == Object::State::Making) {
		wait_for(work, *object);
		return {};
	}
	int error = copy_in(work, *object);
	if (error)
		return -error;
	object->nr_written += item.bytes;
	return item.flags & CXL_KV_ITEM_LAST ? commit(work, object) : 0;
}

int ObjectThread::copy_in(const Work &work, Object &object)
{
	const cxl_kv_item &item = work.item;
	const int fd = buffer_of(work)->fd();

	for (uint32_t done = 0; done < item.bytes;) {
		uint32_t at = item.offset + done, offset = at % options_.chunk_bytes;
		auto part = std::span(scratch_).first(
			std::min(item.bytes - done, options_.chunk_bytes - offset));
		if (int error = read_file(fd, item.buffer_offset + done, part))
			return error;
		uint32_t block = object.chunks[at / options_.chunk_bytes].block;
		if (int error = pool_->write(block, offset, part))
			return error;
		done += static_cast<uint32_t>(part.size());
	}
	return 0;
}

/* From here on it is found, and never changes. */
int ObjectThread::commit(Work &work, Object *object)
{
	if (object->state == Object::State::Ready)
		return object->client == work.connection ? 0 : -EEXIST;
	if (!writes(*object, work))
		return -EPERM;
	if (object->nr_written < object->bytes)
		return -ENODATA;
	for (size_t i = 0; i < object->chunks.size(); i++) {
		auto at = static_cast<uint32_t>(i) * options_.chunk_bytes;
		auto part = std::span(scratch_).first(
			std::min(object->bytes - at, options_.chunk_bytes));
		if (int error = pool_->read(object->chunks[i].block, part))
			return -error;
		object->chunks[i].checksum = checksum(object->key, part);
	}
	ObjectIndex &index = *spaces_.at(object->space).index;
	reservation_timers_.erase({object->deadline_ns, object->id});
	table_.commit(*object);
	index.set_tier(object->slot, tier_of(*object));
	index.set_state(object->slot, CXL_KV_INDEX_READY);
	index.publish_event(object->key, CXL_KV_INDEX_STORED);
	counters_.nr_stored++;
	tenant_stats(work.connection).nr_stored++;
	release(*object);
	wake(*object);
	return 0;
}

int ObjectThread::abort(Work &work, Object *object)
{
	if (object->state == Object::State::Ready)
		return -EEXIST;
	if (!writes(*object, work))
		return -EPERM;
	remove(*object, ENOENT);
	return 0;
}

/* ---- loads ---- */

std::optional<int> ObjectThread::load(Work &work)
{
	const cxl_kv_item &item = work.item;
	Object *object =
		work.object ? table_.find(work.object) : table_.find(item.ns, key_of(item));

	if (!buffer_of(work))
		return -EINVAL;
	if (!object || object->state == Object::State::Gone)
		return -ENOENT;
	if (uint64_t{item.offset} + item.bytes > object->bytes)
		return -EINVAL;
	if (object->pending()) {
		wait_for(work, *object);
		return {};
	}
	if (!work.holds) {
		work.object = object->id;
		work.holds = true;
		work.tier = tier_of(*object);
		hold(*object);
	}
	auto brought = bring_in(work, *object);
	if (!brought || *brought)
		return brought;
	int error = copy_out(work, *object);
	if (error == EBADMSG) {
		counters_.nr_checksum_failures++;
		remove(*object, EIO);
		return -EIO;
	}
	if (error)
		return -error;
	table_.touch(*object);
	for (const Extent &extent : object->extents(arena_->options.number))
		pool_->hint_score(extent, CXL_KV_SCORE_ONE);
	if (item.bytes == object->bytes)
		spaces_.at(object->space)
			.index->note_load(work.tier, monotonic_ns() - work.start_ns);
	counters_.nr_loaded++;
	tenant_stats(work.connection).nr_loaded++;
	return 0;
}

/* All chunks in memory, under the lease that the load holds: 0; or it waits, or they are lost. */
std::optional<int> ObjectThread::bring_in(Work &work, Object &object)
{
	bool all_here = true;

	for (const Object::Chunk &chunk : object.chunks) {
		cxl_kv_state state = pool_->state(chunk.block);
		if (state == CXL_KV_LOST || state == CXL_KV_EMPTY) {
			counters_.nr_lost++;
			remove(object, EIO);
			return -EIO;
		}
		all_here = all_here && here(state);
	}
	if (all_here)
		return 0;
	if (!object.in_flight)
		start_fetch(object, work.item.deadline_ns);
	wait_for(work, object);
	return {};
}

/* A chunk is read and verified as a whole before a byte of it goes to the client. */
int ObjectThread::copy_out(const Work &work, Object &object)
{
	const cxl_kv_item &item = work.item;
	const int fd = buffer_of(work)->fd();

	for (uint32_t done = 0; done < item.bytes;) {
		uint32_t at = item.offset + done, i = at / options_.chunk_bytes;
		uint32_t begin = i * options_.chunk_bytes, offset = at - begin;
		auto whole = std::span(scratch_).first(
			std::min(object.bytes - begin, options_.chunk_bytes));
		if (int error = pool_->read(object.chunks[i].block, whole))
			return error;
		if (checksum(object.key, whole) != object.chunks[i].checksum)
			return EBADMSG;
		auto part = whole.subspan(
			offset, std::min<size_t>(item.bytes - done, whole.size() - offset));
		if (int error = write_file(fd, item.buffer_offset + done, part))
			return error;
		done += static_cast<uint32_t>(part.size());
	}
	return 0;
}

const ObjectBuffer *ObjectThread::buffer_of(const Work &work) const
{
	const auto &buffers = clients_.at(work.connection).buffers;
	auto it = buffers.find(work.item.buffer);

	if (it == buffers.end() || !it->second->holds(work.item.buffer_offset, work.item.bytes))
		return nullptr;
	return it->second.get();
}

/* ---- calls ---- */

/* What of the job (0: of all) has not begun or waits; the rest has its result already. Returns how
 * many. */
int ObjectThread::cancel(Work &work)
{
	const uint64_t connection = work.connection, job = work.item.value;
	const uint32_t lane = work.item.group;
	int nr = 0;

	/* Items that were sent before the cancel may still be in the rings. */
	take_items(connection);
	auto client = clients_.find(connection);
	if (client == clients_.end())
		return 0;
	for (uint64_t id : std::set<uint64_t>(client->second.works)) {
		auto it = works_.find(id); /* an earlier one's end may have ended it */
		if (it == works_.end() || it->second.lane != lane || lane == CXL_KV_LANE_CALL ||
		    (job && it->second.item.job != job))
			continue;
		finish(id, -ECANCELED);
		nr++;
	}
	return nr;
}

/* A block may be in the engine's own tier alone, or here, or in both. */
int ObjectThread::use(const Work &work, Object *object)
{
	const auto score =
		work.item.op == CXL_KV_ITEM_TOUCH
			? uint16_t{CXL_KV_SCORE_ONE}
			: static_cast<uint16_t>(std::min<uint64_t>(work.item.value, UINT16_MAX));
	const bool in_tier = note_use(work, static_cast<float>(score) / CXL_KV_SCORE_ONE);

	if (!object)
		return in_tier ? 0 : -ENOENT;
	if (object->pending())
		return -EBUSY;
	if (score)
		table_.touch(*object);
	for (const Extent &extent : object->extents(arena_->options.number))
		pool_->hint_score(extent, score);
	return 0;
}

int ObjectThread::change(Work &work, Object *object)
{
	const cxl_kv_item &item = work.item;
	const uint64_t now = monotonic_ns();

	if (item.op == CXL_KV_ITEM_LOCK) {
		ObjectTable::lock(*object, work.connection, item.value, item.deadline_ns);
		return 0;
	}
	if (item.op == CXL_KV_ITEM_UNLOCK) {
		ObjectTable::unlock(*object, work.connection, item.value);
		return 0;
	}
	if (object->pending())
		return -EBUSY;
	if (item.op == CXL_KV_ITEM_DELETE) {
		if (object->held(now))
			return -EBUSY;
		remove(*object, ENOENT);
		return 0;
	}
	uint8_t keep = object->priority;
	uint32_t lifetime_ms = 0;
	if (item.op == CXL_KV_ITEM_PRIORITY) {
		if (item.priority > CXL_KV_MAX_PRIORITY)
			return -EINVAL;
		table_.set_priority(*object, item.priority);
		keep = item.priority;
	} else {
		uint64_t left_ms = item.deadline_ns > now ? (item.deadline_ns - now) / 1000000 : 0;
		object->pinned_until_ns = item.deadline_ns;
		if (left_ms) {
			keep = CXL_KV_MAX_PRIORITY;
			lifetime_ms = item.deadline_ns == UINT64_MAX
					      ? 0
					      : static_cast<uint32_t>(
							std::min<uint64_t>(left_ms, UINT32_MAX));
		}
	}
	for (const Extent &extent : object->extents(arena_->options.number))
		pool_->hint_priority(extent, keep, lifetime_ms);
	return 0;
}

} // namespace cxlkv
