/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A daemon against peers that send anything: lines that know the protocol and
 * lie, lines cut and bent, noise, files of the wrong kind, items in rings that
 * make no sense. It must live, and serve others meanwhile. `make check-long` runs
 * it for minutes against a daemon under ASan and UBSan.
 *
 * CXL_KV_FUZZ_SECONDS: how long (3). CXL_KV_FUZZ_SEED: begin where a failure began.
 */
#include "lib/arena_client.h"
#include "lib/control_peer.h"
#include "lib/object_client.h"
#include "sys/object_space.h"

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <iostream>
#include <random>
#include <sys/eventfd.h>
#include <sys/mman.h>

namespace cxlkv::test {

namespace {

using nlohmann::json;

uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, nullptr, 10) : otherwise;
}

class Random {
public:
	explicit Random(uint64_t seed) : engine_(seed) {}

	uint64_t below(uint64_t end) { return engine_() % end; }
	bool one_in(uint64_t n) { return !below(n); }
	/* Edges, small ones, and whatever. */
	uint64_t number()
	{
		static constexpr uint64_t edges[] = {
			0,        1,          2,          3,         16,         63,        64,
			255,      256,        4095,       4096,      65535,      65536,     100000,
			1u << 31, UINT32_MAX, 1ull << 32, INT64_MAX, UINT64_MAX, 1ull << 63};
		if (one_in(3))
			return edges[below(std::size(edges))];
		return one_in(2) ? below(8) : engine_() >> below(64);
	}
	template <typename T> const T &of(const std::vector<T> &choice)
	{
		return choice[below(choice.size())];
	}

private:
	std::mt19937_64 engine_;
};

/* What a field of a request should be like. */
enum class Kind : uint8_t {
	Number,
	Text64,
	Flag,
	Text,
	Ranges,
	Geometry,
	Groups,
	Identity,
	Windows
};

struct Field {
	const char *name;
	Kind kind;
};

const std::vector<std::pair<const char *, std::vector<Field>>> ops = {
	{"hello", {{"version", Kind::Number}, {"name", Kind::Text}, {"tenant", Kind::Text}}},
	{"register",
	 {{"geometry", Kind::Geometry},
	  {"layer_window", Kind::Windows},
	  {"base", Kind::Text64},
	  {"ring_entries", Kind::Number},
	  {"key", Kind::Text64},
	  {"elem_type", Kind::Text},
	  {"cold_format", Kind::Text},
	  {"module_arena", Kind::Number}}},
	{"unregister", {{"arena", Kind::Number}}},
	{"make",
	 {{"arena", Kind::Number}, {"ranges", Kind::Ranges}, {"deadline_ms", Kind::Number}}},
	{"fetch",
	 {{"arena", Kind::Number}, {"ranges", Kind::Ranges}, {"deadline_ms", Kind::Number}}},
	{"drop", {{"arena", Kind::Number}, {"ranges", Kind::Ranges}}},
	{"session", {{"arena", Kind::Number}, {"slot", Kind::Number}, {"state", Kind::Text}}},
	{"wake",
	 {{"arena", Kind::Number},
	  {"slot", Kind::Number},
	  {"wait", Kind::Flag},
	  {"deadline_ms", Kind::Number}}},
	{"park", {{"arena", Kind::Number}, {"slot", Kind::Number}}},
	{"prefetch",
	 {{"arena", Kind::Number},
	  {"slot", Kind::Number},
	  {"position", Kind::Number},
	  {"window", Kind::Number}}},
	{"health", {}},
	{"status", {}},
	{"list", {}},
	{"heads", {{"arena", Kind::Number}}},
	{"decide",
	 {{"arena", Kind::Number},
	  {"slot", Kind::Number},
	  {"hot_bytes", Kind::Text64},
	  {"cold_bytes", Kind::Text64},
	  {"tokens", Kind::Number},
	  {"prefill_tokens_per_s", Kind::Number},
	  {"return_probability", Kind::Flag},
	  {"margin", Kind::Number},
	  {"latency", Kind::Flag},
	  {"split", Kind::Flag}}},
	{"pin",
	 {{"arena", Kind::Number},
	  {"slot", Kind::Number},
	  {"priority", Kind::Number},
	  {"head", Kind::Number},
	  {"block", Kind::Number},
	  {"nr_blocks", Kind::Number},
	  {"lifetime_ms", Kind::Number}}},
	{"drain", {{"tier", Kind::Number}, {"on", Kind::Flag}}}, /* what root may is no attack */
	{"tune", {{"set", Kind::Geometry}}},
	{"record", {{"what", Kind::Text}}},
	{"record_end", {}},
	{"rings", {}},
	{"buffer", {{"buffer", Kind::Number}, {"bytes", Kind::Text64}}},
	{"buffer_remove", {{"buffer", Kind::Number}}},
	{"namespace",
	 {{"name", Kind::Text},
	  {"salt", Kind::Text},
	  {"groups", Kind::Groups},
	  {"identity", Kind::Identity},
	  {"replace", Kind::Flag}}},
	{"namespace_stats", {{"namespace", Kind::Number}}},
	{"namespace_close", {{"namespace", Kind::Number}}},
	{"tier_open",
	 {{"namespace", Kind::Number},
	  {"bytes", Kind::Text64},
	  {"high_permil", Kind::Number},
	  {"low_permil", Kind::Number},
	  {"ack_ms", Kind::Number}}},
	{"tier_close", {{"namespace", Kind::Number}}},
	{"tier_stats", {{"namespace", Kind::Number}}},
	{"advice",
	 {{"namespace", Kind::Number}, {"max", Kind::Number}, {"deadline_ms", Kind::Number}}},
	{"nonsense", {{"arena", Kind::Number}}},
};

const std::string salt(64, 'f'); /* nobody else's */
const std::vector<std::string> texts = {"",     "open", "close",    "default",   "fp16", "bf16",
					"int8", "raw",  "requests", "attention", "fuzz", salt};

class Fuzz {
public:
	Fuzz(const std::string &socket, uint64_t seed) : socket_(socket), random_(seed) {}

	void step()
	{
		if (peers_.size() < 4)
			connect();
		auto &peer = *peers_[random_.below(peers_.size())];
		const uint64_t what = random_.below(100);
		bool alive = true;
		if (what < 60)
			alive = peer.control.send(request() + "\n", files(peer));
		else if (what < 75)
			alive = peer.control.send(bent(request()) + "\n", files(peer));
		else if (what < 77)
			alive = peer.control.send(noise(random_.below(200)));
		else if (what < 97)
			items(peer);
		else if (what == 97)
			alive = peer.control.send(std::string(random_.below(100'000), '[') + "\n");
		else
			alive = false;
		if (!alive || !peer.control.skip_answers())
			std::erase_if(peers_, [&](const auto &p) { return p.get() == &peer; });
	}

private:
	struct Peer {
		explicit Peer(const std::string &socket) : control(socket) {}
		ControlPeer control;
		PeerRings rings;
	};

	/* Most of them with what items need: rings, a buffer, a namespace; some with an arena. */
	void connect()
	{
		peers_.push_back(std::make_unique<Peer>(socket_));
		Peer &peer = *peers_.back();
		if (random_.one_in(8))
			return;
		peer.control.send("{\"op\":\"hello\"}\n");
		peer.control.send("{\"op\":\"rings\"}\n", peer.rings.files());
		peer.control.send("{\"op\":\"buffer\",\"buffer\":1,\"bytes\":\"1048576\"}\n",
				  {memory_.get()});
		json space = {{"op", "namespace"}, {"name", "fuzz"}, {"salt", salt}};
		space["groups"] = {{kGroup, 1000}, {4, 200'000}};
		for (const char *field : SpaceSpec::identity_fields)
			space["identity"][field] = "x";
		peer.control.send(space.dump() + "\n");
		if (random_.one_in(2))
			add_arena(peer);
	}

	void add_arena(Peer &peer)
	{
		if (!arena_) {
			auto made = ArenaClient::create(small_geometry(16, 2));
			if (!made)
				return;
			arena_ = std::move(*made);
		}
		const Geometry &g = arena_->geometry;
		const ArenaFiles files = arena_->files();
		json in = {{"op", "register"},
			   {"base", std::to_string(reinterpret_cast<uint64_t>(arena_->base()))},
			   {"ring_entries", uint32_t{ArenaClient::ring_entries}},
			   {"geometry",
			    {{"nr_slots", g.nr_slots},
			     {"nr_layers", g.nr_layers},
			     {"nr_kv_heads", g.nr_kv_heads},
			     {"head_dim", g.head_dim},
			     {"elem_bytes", g.elem_bytes},
			     {"tokens_per_block", g.tokens_per_block},
			     {"tokens_per_slot", g.tokens_per_slot},
			     {"block_bytes", g.block_bytes}}}};
		peer.control.send(in.dump() + "\n", {files.memory.get(), files.uffd.get(),
						     files.table.get(), files.ring.get()});
	}

	json anything()
	{
		switch (random_.below(8)) {
		case 0:
			return nullptr;
		case 1:
			return random_.number();
		case 2:
			return -static_cast<int64_t>(random_.number() >> 1);
		case 3:
			return random_.one_in(2) ? 1e308 : 0.5;
		case 4:
			return random_.of(texts);
		case 5:
			return json::array({random_.number(), nullptr, random_.of(texts)});
		case 6:
			return json{{"x", random_.number()}};
		default:
			return noise(20);
		}
	}

	json value(Kind kind)
	{
		json out;
		if (random_.one_in(8))
			return anything();
		switch (kind) {
		case Kind::Number:
			return random_.number();
		case Kind::Text64:
			return std::to_string(random_.number());
		case Kind::Flag:
			return random_.one_in(2);
		case Kind::Text:
			return random_.of(texts);
		case Kind::Ranges:
		case Kind::Groups:
			for (uint64_t i = random_.below(5) + random_.one_in(20) * 5000; i; i--)
				out.push_back({random_.number(), random_.number()});
			return out;
		case Kind::Windows:
			for (uint64_t i = random_.below(5); i; i--)
				out.push_back(random_.number());
			return out;
		case Kind::Geometry:
			for (const char *name :
			     {"nr_slots", "nr_layers", "nr_kv_heads", "head_dim", "elem_bytes",
			      "tokens_per_block", "tokens_per_slot", "block_bytes"})
				out[name] = random_.one_in(4) ? anything() : json(random_.number());
			return out;
		case Kind::Identity:
			for (const char *field : SpaceSpec::identity_fields)
				out[field] = random_.one_in(20) ? anything() : json("x");
			return out;
		}
		return out;
	}

	std::string request()
	{
		const auto &[op, fields] = random_.of(ops);
		json out = {{"op", op}};

		if (random_.one_in(2))
			out["id"] = anything();
		for (const Field &field : fields)
			if (!random_.one_in(10))
				out[field.name] = value(field.kind);
		/* Texts of noise are no UTF-8. */
		return out.dump(-1, ' ', false, json::error_handler_t::replace);
	}

	/* A few bytes cut out, put in or changed. */
	std::string bent(std::string line)
	{
		for (uint64_t i = 1 + random_.below(4); i && !line.empty(); i--) {
			const size_t at = random_.below(line.size());
			const uint64_t what = random_.below(3);
			if (what == 0)
				line.erase(at, 1 + random_.below(8));
			else if (what == 1)
				line.insert(at, noise(random_.below(8)));
			else
				line[at] = static_cast<char>(random_.below(256));
		}
		return line;
	}

	std::string noise(uint64_t nr)
	{
		std::string out;

		while (nr--)
			out += static_cast<char>(random_.below(256));
		return out;
	}

	/* None mostly, else some of any kind. */
	std::vector<int> files(const Peer &peer)
	{
		std::vector<int> out;

		if (random_.one_in(2))
			return out;
		for (uint64_t i = random_.below(7); i; i--) {
			const std::vector<int> kinds = {memory_.get(), file_.get(), event_.get(),
							peer.rings.memory.get(),
							peer.rings.doorbell.get()};
			out.push_back(random_.of(kinds));
		}
		return out;
	}

	uint8_t op_for(cxl_kv_lane_class lane)
	{
		if (random_.one_in(20))
			return static_cast<uint8_t>(random_.number());
		if (lane == CXL_KV_LANE_LOAD)
			return CXL_KV_ITEM_LOAD;
		if (lane == CXL_KV_LANE_STORE)
			return CXL_KV_ITEM_STORE;
		return static_cast<uint8_t>(CXL_KV_ITEM_RESERVE + random_.below(15));
	}

	void items(Peer &peer)
	{
		const auto lane = static_cast<cxl_kv_lane_class>(random_.below(CXL_KV_NR_LANES));
		std::vector<cxl_kv_item> out;

		for (uint64_t i = 1 + random_.below(8); i; i--) {
			cxl_kv_item item{};
			item.op = op_for(lane);
			item.key[0] = random_.below(20);
			item.group = random_.one_in(2) ? kGroup : 4;
			item.job = random_.below(4);
			item.value = random_.number();
			item.deadline_ns = random_.one_in(3) ? random_.number() : 0;
			item.buffer_offset = random_.one_in(4) ? random_.number() : 0;
			item.offset =
				random_.one_in(4) ? static_cast<uint32_t>(random_.number()) : 0;
			item.bytes = random_.one_in(4) ? static_cast<uint32_t>(random_.number())
				     : item.group == kGroup ? 1000
							    : 200'000;
			item.buffer = random_.one_in(10) ? 0 : 1;
			item.ns = static_cast<uint32_t>(random_.below(8));
			item.id = static_cast<uint32_t>(random_.number());
			item.priority = static_cast<uint8_t>(random_.number());
			item.flags = static_cast<uint16_t>(
				random_.one_in(4) ? random_.number()
						  : CXL_KV_ITEM_FIRST | CXL_KV_ITEM_LAST);
			out.push_back(item);
		}
		peer.rings.put(lane, out);
		cxl_kv_lane &shared = peer.rings.lanes[lane];
		if (random_.one_in(200))
			shared.item_head += static_cast<uint32_t>(random_.number());
		else if (!random_.one_in(100)) /* as a client does that reads its results */
			shared.result_tail = peer.rings.nr_results(lane);
		shared.nr_lookups = random_.number();
	}

	const std::string socket_;
	Random random_;
	Fd memory_ = *sealed_memfd("fuzz", 1 << 20);
	Fd file_{open("/proc/self/exe", O_RDONLY | O_CLOEXEC)}, event_{eventfd(0, EFD_CLOEXEC)};
	std::unique_ptr<ArenaClient> arena_;
	std::vector<std::unique_ptr<Peer>> peers_;
};

TEST(SocketFuzz, a_daemon_outlives_peers_that_send_anything)
{
	using Clock = std::chrono::steady_clock;
	if (geteuid() != 0)
		GTEST_SKIP() << "needs root for userfaultfd and locked memory";
	const auto seconds = std::chrono::seconds(setting("CXL_KV_FUZZ_SECONDS", 3));
	const uint64_t seed = setting("CXL_KV_FUZZ_SEED", std::random_device{}());
	std::cout << "# CXL_KV_FUZZ_SEED=" << seed << std::endl;
	DaemonProcess daemon{{"HOT__LIMIT=32MiB", "COLD__SIZE=64MiB", "OBJECTS__SIZE=32MiB",
			      "DAEMON__LOG_LEVEL=error"}};
	daemon.start();
	ObjectClient bystander(daemon.socket());
	Fuzz fuzz(daemon.socket(), seed);
	uint64_t nr_steps = 0, nr_rounds = 0;

	for (const auto end = Clock::now() + seconds; Clock::now() < end; nr_rounds++) {
		const auto round_end = Clock::now() + std::chrono::milliseconds(200);
		for (; Clock::now() < round_end; nr_steps++)
			fuzz.step();
		ASSERT_TRUE(daemon.runs()) << daemon.log();
		const auto k = key(nr_rounds);
		ASSERT_EQ(bystander.store_one(k), 0) << "step " << nr_steps;
		ASSERT_EQ(bystander.load_one(k), 0) << "step " << nr_steps;
	}
	std::cout << "# " << nr_steps << " steps" << std::endl;
	EXPECT_GT(nr_steps, 100u);
	daemon.terminate();
	EXPECT_EQ(daemon.log().find("ERROR"), std::string::npos) << daemon.log();
}

} // namespace

} // namespace cxlkv::test
