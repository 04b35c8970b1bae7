/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One client, its arena and a server that serves it: what most tests of the fault server begin
 * with. */
#pragma once

#include "lib/fault_fixture.h"

#include <gtest/gtest.h>

namespace cxlkv::test {

class ArenaTest : public testing::Test {
protected:
	using Kind = Request::Kind;
	static constexpr uint32_t bytes = 64 << 10; /* of a block */

	void SetUp() override { begin({}); }

	void begin(const TestServer::Options &options, uint32_t nr_blocks = 64)
	{
		server.reset();
		auto made = ArenaClient::create(small_geometry(nr_blocks));
		ASSERT_TRUE(made) << made.error().what;
		client = std::move(*made);
		serve(options);
	}
	/* A new server for the client's arena. */
	void serve(const TestServer::Options &options)
	{
		server.reset(); /* whose spill file it may be */
		auto mapped = client->arena(1, 77);
		ASSERT_TRUE(mapped) << mapped.error().what;
		arena = *mapped;
		auto started = TestServer::start(options);
		ASSERT_TRUE(started) << started.error().what;
		server = std::move(*started);
		ASSERT_EQ(server->call(Kind::Attach, arena).error, 0);
	}

	Outcome call(Kind kind, uint32_t first, uint32_t nr, uint64_t timeout_ms = 0)
	{
		return server->call(kind, arena, {{1, first, nr}}, timeout_ms);
	}

	void make(uint32_t first, uint32_t nr, uint32_t round)
	{
		ASSERT_EQ(call(Kind::Make, first, nr).error, 0);
		for (uint32_t block = first; block < first + nr; block++)
			client->fill(block, round);
	}

	/* A request whose answer the test looks at later. */
	struct Posted {
		std::atomic<bool> done{false};
		Outcome outcome;
	};
	std::shared_ptr<Posted> post(Kind kind, uint32_t first, uint32_t nr,
				     uint64_t timeout_ms = 0)
	{
		auto posted = std::make_shared<Posted>();
		server->post(kind, arena, {{1, first, nr}}, timeout_ms, answer_of(posted));
		return posted;
	}
	/* A fetch for a session that is being woken. */
	std::shared_ptr<Posted> post_wake(uint32_t first, uint32_t nr)
	{
		auto posted = std::make_shared<Posted>();
		Request request;

		request.kind = Kind::Fetch;
		request.waking = true;
		request.arena = arena;
		request.extents = {{1, first, nr}};
		request.done = answer_of(posted);
		server->server().submit(std::move(request));
		return posted;
	}
	static std::function<void(const Outcome &)> answer_of(std::shared_ptr<Posted> posted)
	{
		return [posted = std::move(posted)](const Outcome &outcome) {
			posted->outcome = outcome;
			posted->done = true;
		};
	}

	std::unique_ptr<ArenaClient> client;
	std::shared_ptr<Arena> arena;
	std::unique_ptr<TestServer> server; /* last: its thread names the arena */
};

} // namespace cxlkv::test
