/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernel's fault injection (Documentation/fault-injection): the N-th chance
 * to fail, of all allocations and copies from and to user memory that a thread's
 * system calls meet, fails. Only a kernel that was built for it has it:
 * selftests/vm/check-debug-kernel.
 */
#pragma once

#include "base/fd.h"

#include <fcntl.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <unistd.h>

namespace cxlkv::test {

class Faults {
public:
	static bool are_possible() { return access("/proc/thread-self/fail-nth", F_OK) == 0; }

	Faults()
	{
		/* Those of sleeping allocations too, of all sizes, and nothing said of each. */
		for (const char *kind : kinds) {
			set(kind, "verbose", "0");
			set(kind, "stacktrace-depth", "32");
		}
		set("failslab", "ignore-gfp-wait", "N");
		set("fail_page_alloc", "ignore-gfp-wait", "N");
		set("fail_page_alloc", "ignore-gfp-highmem", "N");
		set("fail_page_alloc", "min-order", "0");
	}
	~Faults()
	{
		range("require", 0, ~0ul);
		range("reject", 0, 0);
	}

	/* Only below this function of the kernel; never below that one. */
	void only_below(const std::string &function) { range_of("require", function); }
	void never_below(const std::string &function) { range_of("reject", function); }

	/*
	 * Makes the call with its first chance to fail taken, its second one, and so
	 * on until it has fewer: it must fail with one of @errors or succeed all the
	 * same, and then, and at the end, is undone by @undo. After a failure @left
	 * checks what is left of it. The number of faults.
	 */
	unsigned sweep(
		const std::set<int> &errors, const std::function<int()> &call,
		const std::function<void()> &undo, const std::function<void()> &left = [] {})
	{
		for (unsigned n = 1;; n++) {
			arm(n);
			int error = call();
			bool fired = disarm();
			SCOPED_TRACE("with fault " + std::to_string(n));
			if (error && fired)
				EXPECT_TRUE(errors.contains(error)) << strerror(error);
			else
				EXPECT_EQ(error, 0) << strerror(error);
			error ? left() : undo();
			if (!fired || testing::Test::HasFailure())
				return n - 1;
		}
	}

private:
	static constexpr const char *kinds[] = {"failslab", "fail_page_alloc", "fail_usercopy"};

	static void set(const std::string &kind, const std::string &knob, const std::string &value)
	{
		std::ofstream file("/sys/kernel/debug/" + kind + "/" + knob);

		EXPECT_TRUE(file << value << std::flush) << kind << "/" << knob;
	}
	static void range(const std::string &what, unsigned long from, unsigned long to)
	{
		for (const char *kind : kinds) {
			set(kind, what + "-start", std::to_string(from));
			set(kind, what + "-end", std::to_string(to));
		}
	}
	/* From the function's address to the next symbol's. */
	static void range_of(const std::string &what, const std::string &function)
	{
		std::ifstream symbols("/proc/kallsyms");
		std::set<unsigned long> addresses;
		unsigned long address, from = 0;
		std::string type, name, rest;

		while (symbols >> std::hex >> address >> type >> name && getline(symbols, rest)) {
			addresses.insert(address);
			from = name == function ? address : from;
		}
		ASSERT_NE(from, 0u) << "this kernel has no " << function;
		range(what, from, *addresses.upper_bound(from));
	}

	void arm(unsigned n)
	{
		std::string text = std::to_string(n);
		auto write = [&] { return pwrite(nth_.get(), text.data(), text.size(), 0); };

		/* The chance that is left of the last time may be this very copy. */
		ASSERT_TRUE(write() > 0 || write() > 0) << strerror(errno);
	}
	/* Whether the fault came; this read copies to us, and may take the chance that is left. */
	bool disarm()
	{
		char left[16] = {};
		bool fired = pread(nth_.get(), left, sizeof(left) - 1, 0) > 0 && left[0] == '0';

		arm(0);
		return fired;
	}

	Fd nth_{open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC)};
};

} // namespace cxlkv::test
