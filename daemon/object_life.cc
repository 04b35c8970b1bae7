/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What becomes of objects on their way through memory and store, and of who waits for them. */
#include "object_thread.h"

#include "base/log.h"
#include "registry.h"

#include <algorithm>

namespace cxlkv {

void ObjectThread::finish(uint64_t id, int result)
{
	auto node = works_.extract(id);
	if (!node)
		return;
	const Work &work = node.mapped();
	auto client = clients_.find(work.connection);

	ready_.erase({work.rank(), id});
	work_timers_.erase({work.item.deadline_ns, id});
	if (client != clients_.end()) {
		client->second.works.erase(id);
		if (!client->second.lanes->complete(work.lane, work.item.id, result))
			log_warning("a client has more items out than its rings hold");
	}
	Object *object = work.object ? table_.find(work.object) : nullptr;
	if (!object)
		return;
	if (auto waiters = waiting_.find(object->id); waiters != waiting_.end())
		std::erase(waiters->second, id);
	if (work.holds)
		release(*object);
	/* What a job reserved by itself it leaves whole or not at all. */
	if (result < 0 && work.item.op == CXL_KV_ITEM_STORE && object->pending() &&
	    object->client == work.connection && object->job == work.item.job)
		remove(*object, ENOENT);
}

void ObjectThread::wait_for(Work &work, const Object &object)
{
	work.object = object.id;
	waiting_[object.id].push_back(work.id);
}

void ObjectThread::wake(const Object &object)
{
	auto node = waiting_.extract(object.id);

	if (!node)
		return;
	for (uint64_t id : node.mapped())
		ready_.insert({works_.at(id).rank(), id});
}

void ObjectThread::hold(Object &object)
{
	if (object.nr_users++)
		return;
	for (const Object::Chunk &chunk : object.chunks)
		pool_->lease(chunk.block);
}

void ObjectThread::release(Object &object)
{
	if (--object.nr_users)
		return;
	for (const Object::Chunk &chunk : object.chunks)
		pool_->unlease(chunk.block);
	drop_if_idle(object);
}

/* ---- requests to the I/O thread ---- */

void ObjectThread::request(Request::Kind kind, const Object &object, uint64_t deadline_ns,
			   void (ObjectThread::*then)(uint64_t id, int error))
{
	Request request{};

	request.kind = kind;
	request.arena = arena_;
	request.extents = object.extents(arena_->options.number);
	request.deadline_ns = deadline_ns;
	request.done = [this, then, id = object.id](const Outcome &outcome) {
		post([this, then, id, error = outcome.error] { (this->*then)(id, error); });
	};
	faults_.submit(std::move(request));
}

void ObjectThread::start_make(Object &object)
{
	object.in_flight = true;
	request(Request::Kind::Make, object, object.deadline_ns, &ObjectThread::made);
}

void ObjectThread::made(uint64_t id, int error)
{
	Object &object = *table_.find(id);

	object.in_flight = false;
	if (object.state == Object::State::Gone)
		return drop_if_idle(object);
	if (error)
		return remove(object, error);
	object.state = Object::State::Open;
	wake(object);
}

void ObjectThread::start_fetch(Object &object, uint64_t deadline_ns)
{
	object.in_flight = true;
	request(Request::Kind::Fetch, object, deadline_ns, &ObjectThread::fetched);
}

void ObjectThread::fetched(uint64_t id, int error)
{
	Object &object = *table_.find(id);

	object.in_flight = false;
	if (object.state == Object::State::Gone)
		return drop_if_idle(object);
	/* What is lost is seen in its state. Anything else is no reason to try again by ourselves.
	 */
	if (error && error != EIO) {
		auto node = waiting_.extract(id);
		for (uint64_t work : node ? node.mapped() : std::vector<uint64_t>())
			finish(work, -error);
		return;
	}
	wake(object);
}

/* ---- the end of an object ---- */

void ObjectThread::remove(Object &object, int error)
{
	const uint64_t id = object.id;
	const bool was_pending = object.pending();
	ObjectIndex &index = *spaces_.at(object.space).index;

	index.remove(object.slot);
	if (!was_pending) {
		index.publish_event(object.key, CXL_KV_INDEX_REMOVED);
		counters_.nr_removed++;
	}
	reservation_timers_.erase({object.deadline_ns, id});
	table_.unlink(object);
	nr_leaving_++;
	auto node = waiting_.extract(id);
	for (uint64_t work : node ? node.mapped() : std::vector<uint64_t>())
		finish(work, -error);
	if (was_pending)
		release(object);
	else
		drop_if_idle(object);
}

/* The chunks can go when nobody reads them and the I/O thread has no request about them. */
void ObjectThread::drop_if_idle(Object &object)
{
	if (object.state != Object::State::Gone || object.nr_users || object.in_flight ||
	    object.dropping)
		return;
	object.dropping = true;
	request(Request::Kind::Drop, object, 0, &ObjectThread::chunks_dropped);
}

void ObjectThread::chunks_dropped(uint64_t id, int error)
{
	if (error && error != ECANCELED)
		log_warning("chunks of an object could not be dropped: {}", strerror(error));
	table_.release(*table_.find(id));
	nr_leaving_--;
	for (uint64_t work : std::exchange(want_room_, {}))
		if (auto it = works_.find(work); it != works_.end())
			ready_.insert({it->second.rank(), work});
}

/* Evicts for so many bytes, of the tenant where it is not 0. True: room comes, wait for it. */
bool ObjectThread::make_room(uint64_t tenant, uint64_t bytes)
{
	uint64_t freed = 0;

	while (!nr_leaving_ || (freed && freed < bytes)) {
		Object *victim = table_.victim(tenant, monotonic_ns());
		if (!victim)
			break;
		freed += victim->chunks.size() * uint64_t{options_.chunk_bytes};
		counters_.nr_evicted++;
		remove(*victim, ENOENT);
	}
	return nr_leaving_;
}

void ObjectThread::give_way(uint64_t bytes)
{
	/* Objects of before have no memory where the pool could not be made. */
	post([this, bytes] {
		if (arena_)
			make_room(0, bytes);
	});
}

/* ---- tiers ---- */

/* Of its slowest chunk. */
uint8_t ObjectThread::tier_of(const Object &object) const
{
	uint8_t tier = CXL_KV_TIER_NONE;

	for (const Object::Chunk &chunk : object.chunks)
		tier = std::max(tier, pool_->tier(chunk.block));
	return tier;
}

void ObjectThread::moved(const Extent &extent)
{
	if (extent.arena != arena_number_)
		return;
	post([this, extent] {
		const Object *last = nullptr;
		for (uint32_t block = extent.first; block < extent.first + extent.nr; block++) {
			Object *object = table_.owner(block);
			if (!object || object == last || object->state != Object::State::Ready)
				continue;
			last = object;
			spaces_.at(object->space).index->set_tier(object->slot, tier_of(*object));
		}
	});
}

} // namespace cxlkv
