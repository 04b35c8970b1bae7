/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Restore of one 64 KiB block by a thread that touches it, beside the least
 * that must happen for it: pread(O_DIRECT) of a block of the same spill file
 * and a memcpy. The two take turns, block by block, in one run.
 */
#include "base/histogram.h"
#include "lib/fault_fixture.h"
#include "sys/ledger.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <random>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

constexpr uint32_t nr_blocks = 512, block_bytes = 64 << 10, nr_rounds = 4;

struct Samples {
	std::vector<uint64_t> ns;

	void add(uint64_t start) { ns.push_back(now_ns() - start); }
	[[nodiscard]] double us(double fraction)
	{
		std::sort(ns.begin(), ns.end());
		return static_cast<double>(ns[static_cast<size_t>(
			       fraction * static_cast<double>(ns.size() - 1))]) /
		       1e3;
	}
};

struct Bench {
	std::unique_ptr<ArenaClient> client;
	std::shared_ptr<Arena> arena;
	std::unique_ptr<TestServer> server;
	Fd file;
	uint64_t file_blocks = 0;
	std::unique_ptr<std::byte, decltype(&free)> direct{
		static_cast<std::byte *>(aligned_alloc(4096, block_bytes)), &free};
	std::vector<std::byte> copy = std::vector<std::byte>(block_bytes);
	Samples touched, bare;
	uint32_t nr_wrong = 0;

	Result<> set_up();
	bool round(uint32_t number, std::mt19937 &random);
};

Result<> Bench::set_up()
{
	auto made = ArenaClient::create(small_geometry(nr_blocks));
	if (!made)
		return made.error();
	client = std::move(*made);
	auto mapped = client->arena(1, 1);
	if (!mapped)
		return mapped.error();
	arena = *mapped;
	auto started = TestServer::start({.store_bytes = 256 << 20});
	if (!started)
		return started.error();
	server = std::move(*started);
	file = Fd(open(server->path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
	if (!file)
		return sys_error("open the spill file");
	if (server->call(Request::Kind::Attach, arena).error ||
	    server->call(Request::Kind::Make, arena, {{1, 0, nr_blocks}}).error)
		return error(EIO, "make an arena");
	return ok();
}

/* Everything out, then in again in random order, one by one. */
bool Bench::round(uint32_t number, std::mt19937 &random)
{
	std::vector<uint32_t> order;

	for (uint32_t block = 0; block < nr_blocks; block++) {
		client->fill(block, number);
		order.push_back(block);
	}
	if (server->call(Request::Kind::Spill, arena, {{1, 0, nr_blocks}}).nr_done != nr_blocks)
		return false;
	std::shuffle(order.begin(), order.end(), random);
	file_blocks = server->stats().store.used_bytes / block_bytes;
	for (uint32_t block : order) {
		uint64_t start = now_ns();
		uint64_t first = client->block64(block)->load();
		touched.add(start);
		nr_wrong += first != ArenaClient::pattern(block, number, 0) ||
			    client->nr_wrong(block, number);

		start = now_ns();
		auto at = static_cast<off_t>(random() % file_blocks * block_bytes);
		if (pread(file.get(), direct.get(), block_bytes, at) != block_bytes)
			return false;
		memcpy(copy.data(), direct.get(), block_bytes);
		bare.add(start);
	}
	return true;
}

} // namespace

int main()
{
	Bench bench;
	std::mt19937 random(1);

	if (auto set_up = bench.set_up(); !set_up) {
		fprintf(stderr, "restore_bench: %s\n", set_up.error().what.c_str());
		return 1;
	}
	for (uint32_t i = 1; i <= nr_rounds; i++) {
		if (!bench.round(i, random)) {
			fprintf(stderr, "restore_bench: round %u failed\n", i);
			return 1;
		}
	}
	FaultStats stats = bench.server->stats();
	printf("restore of one 64 KiB block, %zu blocks, %u wrong\n", bench.touched.ns.size(),
	       bench.nr_wrong);
	printf("%-34s %10s %10s\n", "", "p50 us", "p99 us");
	printf("%-34s %10.0f %10.0f\n", "touch to resume", bench.touched.us(0.5),
	       bench.touched.us(0.99));
	printf("%-34s %10.0f %10.0f\n", "  of it, event to resident",
	       static_cast<double>(stats.restore_p50_ns) / 1e3,
	       static_cast<double>(stats.restore_p99_ns) / 1e3);
	printf("%-34s %10.0f %10.0f\n", "pread(O_DIRECT) + memcpy", bench.bare.us(0.5),
	       bench.bare.us(0.99));
	printf("%-34s %10.2f %10.2f\n", "ratio", bench.touched.us(0.5) / bench.bare.us(0.5),
	       bench.touched.us(0.99) / bench.bare.us(0.99));
	return bench.nr_wrong ? 1 : 0;
}
