/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The object thread's part in tiers that engines have for themselves: core/advice.h keeps the
 * books. */
#include "object_thread.h"

#include "registry.h"

#include <algorithm>

namespace cxlkv {

namespace {

/* What time alone changes is seen this often, while somebody waits for advice. */
constexpr uint64_t kLookNs = 100'000'000;

} // namespace

ObjectThread::Tier *ObjectThread::find_tier(uint64_t connection, uint32_t space)
{
	auto client = clients_.find(connection);

	if (client == clients_.end())
		return nullptr;
	auto tier = client->second.tiers.find(space);
	return tier == client->second.tiers.end() ? nullptr : &tier->second;
}

void ObjectThread::open_tier(uint64_t connection, uint32_t number, const AdviceOptions &options,
			     Done done)
{
	auto client = clients_.find(connection);

	if (client == clients_.end() || !client->second.spaces.contains(number))
		return done(error(ENOENT, "no such namespace on this connection"));
	if (!client->second.tiers.try_emplace(number, Tier{AdviceBook(options), {}, 0, 0}).second)
		return done(error(EBUSY, "the namespace has a tier already: close it first"));
	done(ok());
}

void ObjectThread::close_tier(uint64_t connection, uint32_t number, Done done)
{
	Tier *tier = find_tier(connection, number);

	if (!tier)
		return done(error(ENOENT, "no tier is open in this namespace"));
	if (tier->waits)
		tier->waits(error(ENOENT, "the tier was closed"));
	clients_.at(connection).tiers.erase(number);
	done(ok());
}

void ObjectThread::wait_for_advice(uint64_t connection, uint32_t number, size_t max,
				   uint64_t until_ns, AdviceDone done)
{
	Tier *tier = find_tier(connection, number);

	if (!tier)
		return done(error(ENOENT, "no tier is open in this namespace"));
	if (tier->waits)
		return done(error(EBUSY, "another call waits for advice"));
	tier->waits = std::move(done);
	tier->max = max;
	tier->until_ns = until_ns;
	next_advice_ns_ = 0;
}

std::optional<AdviceBook::Stats> ObjectThread::tier_stats(uint64_t connection, uint32_t number)
{
	Tier *tier = find_tier(connection, number);

	if (!tier)
		return {};
	tier->book.expire(monotonic_ns());
	return tier->book.stats();
}

/* True: it is the engine's tier that knows the block. */
bool ObjectThread::note_use(const Work &work, float score)
{
	const cxl_kv_item &item = work.item;
	Tier *tier = find_tier(work.connection, item.ns);

	if (!tier)
		return false;
	const ObjectKey key = key_of(item);
	const auto &groups = spaces_.at(item.ns).spec.groups;
	const bool known = tier->book.knows(key);
	auto group = groups.find(item.group);
	if (group != groups.end() && (known || table_.find(item.ns, key)))
		tier->book.used(key, group->second, score, monotonic_ns());
	next_advice_ns_ = 0;
	return known;
}

int ObjectThread::tell_tier(const Work &work)
{
	const cxl_kv_item &item = work.item;
	const uint64_t now = monotonic_ns();
	Tier *tier = find_tier(work.connection, item.ns);

	if (!tier)
		return -ENOENT;
	next_advice_ns_ = 0;
	if (item.op == CXL_KV_ITEM_ADVICE_END) {
		tier->book.expire(now);
		return tier->book.end(item.value, item.flags & CXL_KV_ITEM_DONE, now) ? 0 : -ENOENT;
	}
	const auto &groups = spaces_.at(item.ns).spec.groups;
	auto group = groups.find(item.group);
	if (group == groups.end())
		return -EINVAL;
	return -tier->book.report(key_of(item), group->second, item.value != 0, now);
}

/* To who waits for it, and the end of what nobody answered. */
void ObjectThread::give_advice()
{
	if (next_advice_ns_ == UINT64_MAX)
		return;
	const uint64_t now = monotonic_ns();
	if (now < next_advice_ns_)
		return;
	next_advice_ns_ = UINT64_MAX;
	for (auto &[connection, client] : clients_)
		for (auto &[space, tier] : client.tiers) {
			tier.book.expire(now);
			if (tier.waits) {
				auto advice =
					tier.book.take(tier.max, now, [&](const ObjectKey &key) {
						const Object *object = table_.find(space, key);
						return object &&
						       object->state == Object::State::Ready;
					});
				if (!advice.empty() || now >= tier.until_ns)
					std::exchange(tier.waits, {})(advice);
				else
					next_advice_ns_ = std::min(
						{next_advice_ns_, tier.until_ns, now + kLookNs});
			}
			next_advice_ns_ = std::min(next_advice_ns_, tier.book.next_expiry_ns());
		}
}

} // namespace cxlkv
