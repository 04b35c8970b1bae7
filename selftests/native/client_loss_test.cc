// SPDX-License-Identifier: LGPL-2.1-or-later
/* Requests of libcxl_kv that meet a lost, silent or new manager, played by the test. */
#include "lib/client_arena_fixture.h"

#include <future>

using namespace cxlkv;

namespace {

TEST_F(ArenaTest, AnswersMayComeInAnotherOrder)
{
	std::string held;

	create();
	set_script([&](Request &request) {
		Reply reply = FakeManager::ok(request);

		if (request.body["op"] == "park") {
			held = reply.text;
			return silence();
		}
		reply = FakeManager::error(request, "EBUSY");
		reply.text += held;
		return reply;
	});
	size_t before = nr_requests();
	auto park = std::async(std::launch::async, [&] { return cxl_kv_session_park(arena_, 0); });
	ASSERT_TRUE(eventually([&] { return nr_requests() > before; }));
	EXPECT_EQ(cxl_kv_session_close(arena_, 1), -EBUSY);
	EXPECT_EQ(park.get(), 0);
}

TEST_F(ArenaTest, NewManagerGetsTheSameFilesByKey)
{
	auto inode = [](const Fd &fd) {
		struct stat st {};
		fstat(fd.get(), &st);
		return st.st_ino;
	};

	create();
	manager_.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	start();
	ASSERT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	ASSERT_EQ(registered_.size(), 2u);
	EXPECT_EQ(registered_[1].body["key"], "18446744073709551615");
	EXPECT_EQ(registered_[1].body["geometry"], registered_[0].body["geometry"]);
	EXPECT_EQ(registered_[1].body["base"], registered_[0].body["base"]);
	ASSERT_EQ(registered_[1].files.size(), 4u);
	for (size_t file : {0, 2, 3})
		EXPECT_EQ(inode(registered_[1].files[file]), inode(registered_[0].files[file]));
}

TEST_F(ArenaTest, LostRequestIsSentAgainUnderTheNewNumber)
{
	const cxl_kv_range range{0, 0, 0, 8};
	std::atomic<int> nr_fetches{0};

	create();
	set_states(0, nr_blocks, CXL_KV_COLD);
	set_script([&](Request &request) {
		if (request.body["op"] != "fetch")
			return FakeManager::agree(request);
		return ++nr_fetches == 1 ? hang_up() : FakeManager::ok(request);
	});
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 100, nullptr), 0);
	EXPECT_EQ(nr_fetches, 2);
	EXPECT_EQ(last_request()["arena"], 2);
	EXPECT_EQ(all_leases(), 8u);
}

TEST_F(ArenaTest, SessionOpenedTwiceByLossIsOpen)
{
	std::atomic<int> nr_opens{0};

	create();
	set_script([&](Request &request) {
		if (request.body["op"] != "session")
			return FakeManager::agree(request);
		return ++nr_opens == 1 ? hang_up() : FakeManager::error(request, "EBUSY");
	});
	EXPECT_EQ(cxl_kv_session_open(arena_, 0, nullptr), 0);
	EXPECT_EQ(nr_opens, 2);
	EXPECT_EQ(cxl_kv_session_open(arena_, 0, nullptr), -EBUSY)
		<< "sent once: somebody else has it";
}

TEST_F(ArenaTest, RegistrationLostInTheMiddleIsDoneAgain)
{
	std::atomic<bool> once{false};

	manager_ = nullptr;
	manager_ = std::make_unique<FakeManager>(socket_.path(), [&](Request &request) {
		if (request.body["op"] == "register" && !once.exchange(true))
			return hang_up();
		return serve(request);
	});
	create();
	EXPECT_EQ(registered_.size(), 1u);
	EXPECT_FALSE(registered_[0].body.contains("key"));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
}

TEST_F(ArenaTest, RegistrationLostRightAfterItsAnswerIsDoneAgainByKey)
{
	std::atomic<bool> once{false};

	manager_ = nullptr;
	manager_ = std::make_unique<FakeManager>(socket_.path(), [&](Request &request) {
		bool first = request.body["op"] == "register" && !once.exchange(true);
		Reply reply = serve(request);

		reply.hang_up = first;
		return reply;
	});
	create();
	EXPECT_TRUE(eventually([&] {
		std::lock_guard guard(lock_);
		return registered_.size() == 2 && registered_[1].body.contains("key");
	}));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
	EXPECT_EQ(last_request()["arena"], 2);
}

TEST_F(ArenaTest, LossWithWaitEndsAtItsDeadline)
{
	const cxl_kv_range range{0, 0, 0, 8};

	create(200);
	set_states(0, nr_blocks, CXL_KV_COLD);
	manager_.reset();
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 10, nullptr), -ETIMEDOUT);
	EXPECT_EQ(all_leases(), 0u);
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), -ETIMEDOUT);
}

TEST_F(ArenaTest, SilentManagerEndsAtTheDeadlineAndItsLateAnswerIsIgnored)
{
	std::string late;

	create(200);
	set_script([&](Request &request) {
		Reply reply = FakeManager::ok(request);

		if (request.body["op"] != "park")
			return reply;
		late += reply.text;
		return silence();
	});
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), -ETIMEDOUT);
	{
		std::lock_guard guard(lock_);
		manager_->say(late);
	}
	EXPECT_EQ(cxl_kv_session_wake(arena_, 0, 10, nullptr), 0);
	EXPECT_EQ(last_request()["wait"], true);
	EXPECT_EQ(cxl_kv_session_wake(arena_, 0, 0, nullptr), 0);
	EXPECT_EQ(last_request()["wait"], false);
	EXPECT_GT(last_request()["deadline_ms"], 0) << "not waiting is not giving up at once";
}

TEST_F(ArenaTest, LossWithFailAnswersAtOnce)
{
	const cxl_kv_range range{0, 0, 0, 8};

	create(60000, CXL_KV_LOSS_FAIL);
	set_states(0, nr_blocks, CXL_KV_COLD);
	set_script([&](Request &request) {
		return request.body["op"] == "fetch" ? hang_up() : FakeManager::agree(request);
	});
	EXPECT_EQ(cxl_kv_lease(arena_, &range, 1, 10, nullptr), -ENOTCONN)
		<< "lost while it waited";
	EXPECT_EQ(all_leases(), 0u);
	manager_.reset();
	EXPECT_TRUE(eventually([&] { return !cxl_kv_connected(kv_); }));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), -ENOTCONN);
	start();
	EXPECT_TRUE(eventually([&] { return cxl_kv_connected(kv_); }));
	EXPECT_EQ(cxl_kv_session_park(arena_, 0), 0);
}

TEST_F(ArenaTest, ManyWaitersSurviveALoss)
{
	std::atomic<int> nr_parks{0}, nr_failed{0};
	std::vector<std::thread> threads;

	create();
	set_script([&](Request &request) {
		if (request.body["op"] != "park")
			return FakeManager::agree(request);
		int nr = ++nr_parks;
		return nr < 8 ? silence() : nr == 8 ? hang_up() : FakeManager::ok(request);
	});
	for (int i = 0; i < 8; i++)
		threads.emplace_back([&] { nr_failed += cxl_kv_session_park(arena_, 0) != 0; });
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(nr_failed, 0);
	EXPECT_EQ(nr_parks, 16);
}

} // namespace
