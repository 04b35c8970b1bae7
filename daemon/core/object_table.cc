/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "core/object_table.h"

#include <algorithm>
#include <cerrno>

namespace cxlkv {

std::vector<uint32_t> ChunkSpace::take(uint32_t nr)
{
	std::vector<uint32_t> chunks;

	if (nr > nr_free_)
		return chunks;
	while (chunks.size() < nr) {
		auto run = runs_.begin();
		auto [first, length] = *run;
		auto taken = std::min<uint32_t>(length, nr - static_cast<uint32_t>(chunks.size()));
		for (uint32_t i = 0; i < taken; i++)
			chunks.push_back(first + i);
		runs_.erase(run);
		if (taken < length)
			runs_[first + taken] = length - taken;
	}
	nr_free_ -= nr;
	return chunks;
}

bool ChunkSpace::take_one(uint32_t chunk)
{
	auto run = runs_.upper_bound(chunk);

	if (run == runs_.begin())
		return false;
	auto [first, length] = *--run;
	if (chunk - first >= length)
		return false;
	runs_.erase(run);
	if (chunk > first)
		runs_[first] = chunk - first;
	if (first + length > chunk + 1)
		runs_[chunk + 1] = first + length - chunk - 1;
	nr_free_--;
	return true;
}

void ChunkSpace::give(uint32_t chunk)
{
	auto next = runs_.upper_bound(chunk);
	uint32_t nr = 1;

	nr_free_++;
	if (next != runs_.end() && next->first == chunk + 1) {
		nr += next->second;
		next = runs_.erase(next);
	}
	if (next != runs_.begin()) {
		auto before = std::prev(next);
		if (before->first + before->second == chunk) {
			before->second += nr;
			return;
		}
	}
	runs_[chunk] = nr;
}

bool Object::locked(uint64_t now_ns) const
{
	return std::ranges::any_of(locks, [&](const Lock &lock) { return lock.until_ns > now_ns; });
}

std::vector<Extent> Object::extents(uint32_t arena) const
{
	std::vector<Extent> extents;

	for (const Chunk &chunk : chunks)
		append(extents, {arena, chunk.block, 1});
	return extents;
}

Object *ObjectTable::find(uint32_t space, const ObjectKey &key)
{
	auto keys = spaces_.find(space);

	if (keys == spaces_.end())
		return nullptr;
	auto it = keys->second.find(key);
	return it == keys->second.end() ? nullptr : it->second;
}

Object *ObjectTable::find(uint64_t id)
{
	auto it = objects_.find(id);

	return it == objects_.end() ? nullptr : &it->second->object;
}

Object &ObjectTable::add(uint32_t space, uint64_t tenant, const ObjectKey &key, uint32_t bytes)
{
	auto owned = std::make_unique<Owned>();
	Object &object = owned->object;

	owned->tenant = tenant;
	object.id = next_id_++;
	object.space = space;
	object.key = key;
	object.bytes = bytes;
	spaces_[space][key] = &object;
	tenants_[tenant].bytes += uint64_t{chunks_for(bytes)} * chunk_bytes_;
	objects_[object.id] = std::move(owned);
	return object;
}

int ObjectTable::reserve(uint32_t space, uint64_t tenant, const ObjectKey &key, uint32_t bytes,
			 Object **out)
{
	uint32_t nr = chunks_for(bytes);
	uint64_t needed = uint64_t{nr} * chunk_bytes_;
	Usage now = usage(tenant);

	if (nr > nr_chunks() || (now.quota_bytes && needed > now.quota_bytes))
		return EFBIG;
	if (now.quota_bytes && now.bytes + needed > now.quota_bytes)
		return EDQUOT;
	auto blocks = free_.take(nr);
	if (blocks.empty())
		return ENOSPC;
	Object &object = add(space, tenant, key, bytes);
	for (uint32_t block : blocks) {
		object.chunks.push_back({block, 0});
		owner_[block] = &object;
	}
	*out = &object;
	return 0;
}

Object *ObjectTable::recover(uint32_t space, uint64_t tenant, const ObjectKey &key, uint32_t bytes,
			     const std::vector<Object::Chunk> &chunks)
{
	size_t nr_taken = 0;

	if (chunks.size() != chunks_for(bytes) || find(space, key))
		return nullptr;
	while (nr_taken < chunks.size() && chunks[nr_taken].block < nr_chunks() &&
	       free_.take_one(chunks[nr_taken].block))
		nr_taken++;
	if (nr_taken < chunks.size()) {
		while (nr_taken--)
			free_.give(chunks[nr_taken].block);
		return nullptr;
	}
	Object &object = add(space, tenant, key, bytes);
	object.chunks = chunks;
	for (const Object::Chunk &chunk : chunks)
		owner_[chunk.block] = &object;
	commit(object);
	return &object;
}

void ObjectTable::commit(Object &object)
{
	object.state = Object::State::Ready;
	object.used = next_use_++;
	victims_[{object.priority, object.used}] = objects_.at(object.id).get();
}

void ObjectTable::touch(Object &object)
{
	set_priority(object, object.priority);
}

void ObjectTable::set_priority(Object &object, uint8_t priority)
{
	if (object.state == Object::State::Ready)
		victims_.erase({object.priority, object.used});
	object.priority = priority;
	if (object.state == Object::State::Ready)
		commit(object);
}

Object *ObjectTable::victim(uint64_t tenant, uint64_t now_ns) const
{
	for (const auto &[rank, owned] : victims_)
		if ((!tenant || owned->tenant == tenant) && !owned->object.held(now_ns))
			return &owned->object;
	return nullptr;
}

void ObjectTable::unlink(Object &object)
{
	if (object.state == Object::State::Ready)
		victims_.erase({object.priority, object.used});
	if (object.state != Object::State::Gone)
		spaces_[object.space].erase(object.key);
	object.state = Object::State::Gone;
}

void ObjectTable::release(Object &object)
{
	unlink(object);
	for (const Object::Chunk &chunk : object.chunks) {
		owner_[chunk.block] = nullptr;
		free_.give(chunk.block);
	}
	tenants_[objects_.at(object.id)->tenant].bytes -= object.chunks.size() * chunk_bytes_;
	objects_.erase(object.id);
}

void ObjectTable::lock(Object &object, uint64_t client, uint64_t owner, uint64_t until_ns)
{
	unlock(object, client, owner);
	object.locks.push_back({client, owner, until_ns});
}

void ObjectTable::unlock(Object &object, uint64_t client, uint64_t owner)
{
	std::erase_if(object.locks, [&](const Object::Lock &lock) {
		return lock.client == client && lock.owner == owner;
	});
}

std::vector<Object *> ObjectTable::forget_client(uint64_t client)
{
	std::vector<Object *> reserved;

	for (const auto &[id, owned] : objects_) {
		Object &object = owned->object;
		std::erase_if(object.locks,
			      [&](const auto &lock) { return lock.client == client; });
		if (object.pending() && object.client == client)
			reserved.push_back(&object);
	}
	return reserved;
}

ObjectTable::Usage ObjectTable::usage(uint64_t tenant) const
{
	auto it = tenants_.find(tenant);

	return it == tenants_.end() ? Usage{} : it->second;
}

std::vector<Object *> ObjectTable::all() const
{
	std::vector<Object *> objects;

	for (const auto &[id, owned] : objects_)
		objects.push_back(&owned->object);
	return objects;
}

} // namespace cxlkv
