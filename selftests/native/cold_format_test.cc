/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that the cold tier keeps in fewer bits: near the original, and exact wherever it may. */
#include "lib/arena_fixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <unistd.h>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

using codec::Format;
using codec::Source;

const ColdFormat int8 = cold_format(Format::Int8, Source::Fp16);
const ColdFormat int4 = cold_format(Format::Int4, Source::Fp16);
const ColdFormat fp8 = cold_format(Format::Fp8, Source::Fp16);

class ColdFormats : public ArenaTest {
protected:
	void SetUp() override
	{
		path = new_spill_file();
		begin({.path = path});
	}
	void TearDown() override
	{
		server.reset();
		unlink(path.c_str());
	}

	/* FP16 numbers between 1/16 and 2 of either sign. */
	static std::vector<uint16_t> numbers(uint32_t block)
	{
		std::mt19937 random(block + 1);
		std::vector<uint16_t> out(bytes / 2);
		for (uint16_t &one : out) {
			auto r = static_cast<uint32_t>(random());
			one = static_cast<uint16_t>((r & 0x83ff) | ((11 + (r >> 16) % 5) << 10));
		}
		return out;
	}
	static double value(uint16_t bits)
	{
		int exponent = bits >> 10 & 0x1f;
		double x = std::ldexp(1024 + (bits & 0x3ff), exponent - 25);
		return bits & 0x8000 ? -x : x;
	}
	uint16_t *at(uint32_t block) const
	{
		return reinterpret_cast<uint16_t *>(client->block64(block));
	}
	std::vector<uint16_t> contents(uint32_t block) const
	{
		return {at(block), at(block) + bytes / 2};
	}
	/* Of what is in memory against what was filled in; brings the block back. */
	double nmse(uint32_t block) const
	{
		double signal = 0, noise = 0;
		auto now = contents(block), was = numbers(block);
		for (size_t i = 0; i < was.size(); i++) {
			double x = value(was[i]), y = value(now[i]);
			signal += x * x;
			noise += (x - y) * (x - y);
		}
		return noise / signal;
	}

	void make_numbers(uint32_t first, uint32_t nr)
	{
		ASSERT_EQ(call(Kind::Make, first, nr).error, 0);
		for (uint32_t block = first; block < first + nr; block++)
			std::ranges::copy(numbers(block), at(block));
	}
	void spill(uint32_t first, uint32_t nr, ColdFormat format)
	{
		arena->cold_format = format;
		ASSERT_EQ(call(Kind::Spill, first, nr).nr_done, nr);
	}
	/* The next server on the same spill file; the client lives on. */
	void restart(const std::function<void()> &while_down = [] {})
	{
		ASSERT_EQ(server->call(Kind::Detach, arena, {}, 0, true).error, 0);
		server.reset();
		while_down();
		auto mapped = client->arena(1, 77);
		ASSERT_TRUE(mapped);
		arena = *mapped;
		auto started = TestServer::start({.path = path});
		ASSERT_TRUE(started) << started.error().what;
		server = std::move(*started);
		ASSERT_EQ(server->call(Kind::Attach, arena).error, 0);
	}

	std::string path;
};

TEST_F(ColdFormats, ComeBackNearAndTakeLessRoom)
{
	const struct {
		ColdFormat format;
		double nmse;
		uint32_t stored;
	} cases[] = {{int8, 1e-4, 36864}, {fp8, 2e-3, 36864}, {int4, 2e-2, 20480}};
	uint32_t first = 0;

	for (const auto &one : cases) {
		uint64_t before = server->stats().store.user_bytes;
		make_numbers(first, 20);
		spill(first, 20, one.format);
		EXPECT_EQ(server->stats().store.user_bytes - before, 20u * one.stored);
		for (uint32_t block = first; block < first + 20; block++) {
			double error = nmse(block);
			EXPECT_GT(error, 0) << block;
			EXPECT_LE(error, one.nmse) << block;
		}
		first += 20;
	}
	EXPECT_EQ(server->stats().nr_encoded, 60u);
	EXPECT_EQ(server->stats().encoded_bytes, 20u * (36864 + 36864 + 20480));
	EXPECT_EQ(server->stats().nr_demand_restored, 60u);
}

TEST_F(ColdFormats, WhatTheStatisticsSayIsWhatCameBack)
{
	make_numbers(0, 1);
	spill(0, 1, int8);
	auto heads = arena->head_errors.all();
	ASSERT_EQ(heads.size(), 1u);
	EXPECT_NEAR(heads[0].nmse(), nmse(0), 1e-9);
	EXPECT_GT(heads[0].cosine(), 0.9999);
	EXPECT_LT(heads[0].cosine(), 1);
}

TEST_F(ColdFormats, UnwrittenBlockLeavesAgainWithoutAWriteAndComesBackTheSame)
{
	make_numbers(0, 16);
	spill(0, 16, int8);
	std::vector<std::vector<uint16_t>> first;
	for (uint32_t block = 0; block < 16; block++)
		first.push_back(contents(block));
	uint64_t written = server->stats().store.user_bytes;

	spill(0, 16, int8);
	EXPECT_EQ(server->stats().nr_spilled_clean, 16u);
	EXPECT_EQ(server->stats().store.user_bytes, written);
	for (uint32_t block = 0; block < 16; block++)
		EXPECT_EQ(contents(block), first[block]) << block;
}

TEST_F(ColdFormats, WhatCannotBeEncodedIsKeptExactlyAndItsNeighboursAreEncoded)
{
	make_numbers(0, 16);
	auto with_nan = numbers(5), with_infinity = numbers(9);
	with_nan[777] = at(5)[777] = 0x7e01;
	with_infinity[3] = at(9)[3] = 0xfc00;

	spill(0, 16, int8);
	EXPECT_EQ(server->stats().nr_encoded, 14u);
	EXPECT_EQ(server->stats().nr_not_encoded, 2u);
	EXPECT_EQ(contents(5), with_nan);
	EXPECT_EQ(contents(9), with_infinity);
	for (uint32_t block : {0, 4, 6, 8, 10, 15}) {
		EXPECT_GT(nmse(block), 0) << block;
		EXPECT_LE(nmse(block), 1e-4) << block;
	}
}

TEST_F(ColdFormats, ServersOfOtherFormatsReadWhatIsThere)
{
	make_numbers(0, 30);
	spill(0, 10, int8);
	spill(10, 10, ColdFormat::Raw);
	spill(20, 10, int4);
	restart();
	arena->cold_format = fp8;
	EXPECT_EQ(server->call(Kind::Fetch, arena, {{1, 0, 30}}, 5000).error, 0);
	for (uint32_t block = 0; block < 30; block++) {
		EXPECT_LE(nmse(block), block < 10 ? 1e-4 : block < 20 ? 0 : 2e-2) << block;
		EXPECT_EQ(nmse(block) > 0, block < 10 || block >= 20) << block;
	}
	EXPECT_EQ(server->stats().nr_lost, 0u);
}

TEST_F(ColdFormats, FormatFromTheFutureIsAMiss)
{
	make_numbers(0, 3);
	spill(0, 3, int8);
	restart([this] {
		StoreOptions options;
		options.path = path;
		options.size_bytes = 64 << 20;
		auto store = SpillStore::open(options);
		ASSERT_TRUE(store);
		for (uint32_t format : {7u, UINT32_MAX}) {
			Bounce buffer = (*store)->take_buffer();
			uint32_t block = format == 7;
			ASSERT_TRUE((*store)->write(77, block, 1, 36864, 1, buffer, 1, format));
			ASSERT_TRUE((*store)->sync());
			ASSERT_EQ((*store)->poll().size(), 1u);
			(*store)->commit({77, block});
		}
	});
	EXPECT_EQ(call(Kind::Fetch, 0, 1, 5000).error, EIO);
	EXPECT_EQ(call(Kind::Fetch, 1, 1, 5000).error, EIO);
	EXPECT_EQ(call(Kind::Fetch, 2, 1, 5000).error, 0);
	EXPECT_EQ(client->state(0), CXL_KV_LOST);
	EXPECT_LE(nmse(2), 1e-4);
	EXPECT_EQ(server->stats().nr_unknown_format, 2u);
	EXPECT_EQ(server->stats().nr_lost, 2u);
}

TEST_F(ColdFormats, AbortedSpillCostsNoAccuracy)
{
	make_numbers(0, 4);
	server->io().hold(true, false);
	arena->cold_format = int4;
	auto posted = post(Kind::Spill, 0, 4);
	ASSERT_TRUE(eventually([&] { return server->io().nr_held(IoRequest::Op::Write) > 0; }));
	client->lease(1);
	server->io().release();
	ASSERT_TRUE(eventually([&] { return posted->done.load(); }));
	EXPECT_EQ(posted->outcome.nr_done, 3u);
	EXPECT_EQ(contents(1), numbers(1));
	EXPECT_GT(nmse(0), 0);
	EXPECT_EQ(arena->nr_encoded, 3u);
}

TEST_F(ColdFormats, DeviceErrorLeavesTheOriginal)
{
	make_numbers(0, 4);
	server->io().fail([](const IoRequest &request) {
		return request.op == IoRequest::Op::Write ? std::optional(-EIO) : std::nullopt;
	});
	arena->cold_format = int4;
	EXPECT_EQ(call(Kind::Spill, 0, 4).error, EIO);
	for (uint32_t block = 0; block < 4; block++)
		EXPECT_EQ(contents(block), numbers(block)) << block;
}

/* As Spill.PunchThatLeavesPagesIsUndone: the pages are gone, the encoded bytes are all there is. */
TEST_F(ColdFormats, PunchThatLeavesPagesGivesTheDecodedBlockBack)
{
	make_numbers(0, 4);
	arena->cold_format = int8;
	std::atomic<bool> stop = false;
	std::thread intruder([&] {
		auto right = numbers(2);
		while (!stop)
			ASSERT_EQ(pwrite(client->own_files().memory.get(), &right[4096], 8,
					 2 * bytes + 8192),
				  8);
	});
	EXPECT_TRUE(eventually([&] {
		call(Kind::Spill, 0, 4);
		EXPECT_EQ(call(Kind::Fetch, 0, 4, 5000).error, 0);
		for (uint32_t block = 0; block < 4; block++)
			EXPECT_LE(nmse(block), 2e-4) << block;
		return server->stats().nr_spill_failed >= 20;
	}));
	stop = true;
	intruder.join();
}

/* Geometries that the format does not fit are spilled as they are. */
TEST(ColdFormatSizes, WholePagesAndSmallerThanTheBlockOrNothing)
{
	Geometry g = small_geometry(4);
	EXPECT_EQ(stored_bytes(g, int8), 36864u);
	EXPECT_EQ(stored_bytes(g, int4), 20480u);
	EXPECT_EQ(stored_bytes(g, ColdFormat::Raw), 0u);
	EXPECT_EQ(stored_bytes(g, static_cast<ColdFormat>(7)), 0u);
	g.elem_bytes = 4;
	EXPECT_EQ(stored_bytes(g, int8), 0u);
	g.elem_bytes = 2;
	g.tokens_per_block = 8; /* 4 KiB a block: nothing is smaller than a page */
	g.block_bytes = 4096;
	EXPECT_EQ(stored_bytes(g, int4), 0u);
	g.head_dim = 80;
	EXPECT_EQ(stored_bytes(g, int8), 0u);
}

} // namespace
