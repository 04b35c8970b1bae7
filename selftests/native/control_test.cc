// SPDX-License-Identifier: LGPL-2.1-or-later
/* A real cxl-kvd and clients that mean no good: what they send must not end it, or cost others. */
#include "base/fd.h"
#include "lib/control_peer.h"
#include "lib/daemon_process.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <sys/wait.h>
#include <thread>

using namespace cxlkv;
using nlohmann::json;
using test::ControlPeer;

namespace {

class ControlTest : public ::testing::Test {
protected:
	void SetUp() override { daemon_.start(); }
	void TearDown() override
	{
		if (HasFailure())
			std::cout << "# " << daemon_.log();
	}

	/* Somebody else is still served. */
	void expect_served()
	{
		EXPECT_EQ(
			ControlPeer(daemon_.socket()).ask(R"({"op":"list","id":7})").value("id", 0),
			7);
	}

	DaemonProcess daemon_{{"HOT__LIMIT=4MiB", "COLD__SIZE=32MiB"}};
};

TEST_F(ControlTest, TextCutWithinACharacterIsAnswered)
{
	/* The daemon shows 32 bytes of an unknown op: the last is the first half of a character. */
	ControlPeer peer(daemon_.socket());
	json answer = peer.ask(R"({"op":")" + std::string(31, 'x') + R"(\u00e9"})");

	ASSERT_TRUE(answer.is_object()) << "no answer, or one that is not JSON";
	EXPECT_EQ(answer.value("error", ""), "EOPNOTSUPP");
	expect_served();
}

TEST_F(ControlTest, WhatIsNestedTooDeepIsRefused)
{
	const std::string deep = std::string(30000, '[') + std::string(30000, ']');
	for (const char *key : {"set", "id", "ranges"}) {
		json answer = ControlPeer(daemon_.socket())
				      .ask(std::string(R"({"op":"tune","set":{},")") + key +
					   R"(":{"a":)" + deep + "}}");
		ASSERT_TRUE(answer.is_object()) << key;
		EXPECT_EQ(answer.value("error", ""), "EPROTO") << key;
		EXPECT_NE(answer.value("message", "").find("nested at most 64 deep"),
			  std::string::npos)
			<< answer;
	}
	expect_served();
}

TEST_F(ControlTest, APeerThatReadsNothingTakesFewFiles)
{
	if (!Fd(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC)))
		GTEST_SKIP() << "answers carry no file without /dev/userfaultfd";
	/* Each answer to hello carries a file, which stays open in the daemon until it is read. */
	ControlPeer peer(daemon_.socket());
	std::string lines;
	for (int i = 0; i < 1000; i++)
		lines += "{\"op\":\"hello\"}\n";
	bool taken = true;
	for (int i = 0; i < 100 && taken; i++)
		taken = peer.send(lines);
	EXPECT_FALSE(taken) << "100000 files are on their way to one peer";
	expect_served();
}

TEST(ControlPath, AFileThatIsNoSocketIsLeftAlone)
{
	DaemonProcess daemon({"HOT__LIMIT=4MiB", "COLD__SIZE=32MiB"});

	std::ofstream(daemon.socket()) << "precious";
	EXPECT_THROW(daemon.start(), std::runtime_error);
	EXPECT_NE(daemon.log().find("not a socket"), std::string::npos) << daemon.log();
	EXPECT_TRUE(std::filesystem::is_regular_file(daemon.socket()));
}

/* Of the tests themselves: no daemon stays behind one that was killed. */
TEST(DaemonOfATest, EndsWithIt)
{
	DaemonProcess daemon({"HOT__LIMIT=4MiB", "COLD__SIZE=32MiB"});
	int started[2];
	char byte;

	ASSERT_EQ(pipe(started), 0);
	pid_t child = fork();
	if (!child) {
		try {
			daemon.start();
			if (write(started[1], "x", 1) == 1)
				pause();
		} catch (const std::exception &e) {
			std::cout << "# " << e.what() << std::endl;
		}
		_exit(1);
	}
	close(started[1]);
	ASSERT_EQ(read(started[0], &byte, 1), 1) << "it did not start";
	close(started[0]);
	ControlPeer peer(daemon.socket());
	pid_t pid = peer.ask(R"({"op":"status","id":1})").value("pid", 0);
	kill(child, SIGKILL);
	EXPECT_EQ(waitpid(child, nullptr, 0), child);
	bool ended = false;
	for (int i = 0; i < 1000 && !ended; i++) {
		ended = !peer.skip_answers();
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	}
	EXPECT_TRUE(ended);
	if (!ended && pid > 0)
		kill(pid, SIGKILL);
}

} // namespace
