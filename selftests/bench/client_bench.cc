// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * Keyed objects against what they cannot be faster than, measured in the same
 * run: look-ups in batches of 256 against as many in a std::unordered_map of the
 * same keys, and a job, submitted and polled, against one round trip between two
 * threads by eventfds; once by a caller that looks until the result is there, and
 * once by one that sleeps until the event. Who answers, the daemon or the other
 * thread, has a CPU of its own, as beside an engine: where the kernel puts two
 * threads on one, a round trip is many times shorter. The objects have 64 bytes; what copying
 * those costs, by the system calls that the daemon makes for it, is measured too and
 * subtracted. Medians of rounds that alternate. Needs root, for the daemon.
 */
#include "base/fd.h"
#include "lib/object_client.h"
#include "lib/run_on.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <isa-l/crc64.h>
#include <memory>
#include <poll.h>
#include <random>
#include <sched.h>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <utility>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

constexpr size_t nr_keys = 8192, batch = 256, nr_batches = 64, nr_rounds = 31;
constexpr int nr_trips = 1000;
constexpr uint32_t small_group = 1, small_bytes = 64;
constexpr double allowed = 2;

double ns_of(const std::function<void()> &what, double nr)
{
	using Clock = std::chrono::steady_clock;
	auto begin = Clock::now();

	what();
	return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / nr;
}

double median(std::vector<double> values)
{
	std::sort(values.begin(), values.end());
	return values[values.size() / 2];
}

/* Prints both and their ratio; true where it is allowed. */
bool report(const char *what, const char *base, double ours, double theirs)
{
	bool good = ours <= allowed * theirs;

	printf("%-28s %9.1f ns\n%-28s %9.1f ns\n  ratio %.2f, allowed %.0f: %s\n", what, ours, base,
	       theirs, ours / theirs, allowed, good ? "ok" : "missed");
	return good;
}

struct KeyHash {
	size_t operator()(const cxl_kv_key &key) const
	{
		return std::hash<std::string_view>()(
			{reinterpret_cast<const char *>(&key), sizeof(key)});
	}
};
struct SameKey {
	bool operator()(const cxl_kv_key &a, const cxl_kv_key &b) const
	{
		return !memcmp(&a, &b, sizeof(a));
	}
};

cxl_kv_key random_key(std::mt19937_64 &random)
{
	cxl_kv_key key{};
	uint64_t words[4] = {random(), random(), random(), random()};

	memcpy(key.bytes, words, sizeof(words));
	key.group = small_group;
	return key;
}

cxl_kv_ns *open_namespace(cxl_kv *kv)
{
	const cxl_kv_group groups[] = {{small_group, small_bytes}};
	const auto id = identity();
	const cxl_kv_ns_options options = {sizeof(options), 0, "bench", &id, groups, 1};
	cxl_kv_ns *ns = nullptr;

	return cxl_kv_ns_open(kv, &options, nullptr, 0, &ns) ? nullptr : ns;
}

enum class Wait { Look, Sleep };

/* One job, from its submission to its completion. */
int run_job(cxl_kv *kv, cxl_kv_ns *ns, cxl_kv_class job_class, const cxl_kv_key *keys, size_t nr,
	    uint8_t *bytes, Wait wait)
{
	std::vector<iovec> iovs(nr);
	std::vector<cxl_kv_transfer> transfers(nr);
	cxl_kv_completion done{};
	cxl_kv_job job{};
	pollfd event{cxl_kv_event_fd(kv, job_class), POLLIN, 0};
	eventfd_t count;

	for (size_t i = 0; i < nr; i++) {
		iovs[i] = {bytes + i * small_bytes, small_bytes};
		transfers[i] = {keys[i], 0, &iovs[i], 1};
	}
	job.size = sizeof(job);
	job.transfers = transfers.data();
	job.nr = nr;
	int rc = job_class == CXL_KV_LOAD ? cxl_kv_submit_load(ns, &job, nullptr)
					  : cxl_kv_submit_store(ns, &job, nullptr);
	while (!rc && !cxl_kv_poll(kv, job_class, &done, 1)) {
		if (wait == Wait::Look)
			continue;
		poll(&event, 1, -1);
		eventfd_read(event.fd, &count);
	}
	return rc ? rc : done.error;
}

/* The first CPU that this process may use, and the last. */
std::pair<int, int> two_cpus()
{
	int first = CPU_SETSIZE, last = 0;
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		first = std::min(first, cpu);
		last = cpu;
	}
	return {first, last};
}

/* Two threads that hand a turn to and fro. */
class PingPong {
public:
	explicit PingPong(int cpu)
	    : there_(eventfd(0, EFD_CLOEXEC)), back_(eventfd(0, EFD_CLOEXEC)), other_([this, cpu] {
		      eventfd_t count = 0;
		      run_on(cpu);
		      while (!eventfd_read(there_.get(), &count) && count == 1)
			      eventfd_write(back_.get(), 1);
	      })
	{
	}
	~PingPong()
	{
		eventfd_write(there_.get(), 2);
		other_.join();
	}
	void trip()
	{
		eventfd_t count;

		eventfd_write(there_.get(), 1);
		eventfd_read(back_.get(), &count);
	}

private:
	Fd there_, back_;
	std::thread other_;
};

/* What the daemon does with the bytes of a load: pool -> verified -> the client's buffer. */
class Copy {
public:
	Copy()
	    : pool_(memfd_create("pool", MFD_CLOEXEC)), buffer_(memfd_create("buffer", MFD_CLOEXEC))
	{
		good_ = pwrite(pool_.get(), bytes_, sizeof(bytes_), 0) == sizeof(bytes_);
	}
	void run()
	{
		good_ = good_ && pread(pool_.get(), bytes_, sizeof(bytes_), 0) == sizeof(bytes_);
		sum_ ^= crc64_ecma_refl(sum_, bytes_, sizeof(bytes_));
		good_ = good_ && pwrite(buffer_.get(), bytes_, sizeof(bytes_), 0) == sizeof(bytes_);
	}
	[[nodiscard]] bool good() const { return good_; }

private:
	Fd pool_, buffer_;
	uint8_t bytes_[small_bytes] = {1};
	uint64_t sum_ = 0;
	bool good_;
};

bool measure_lookups(cxl_kv_ns *ns, const std::vector<cxl_kv_key> &keys)
{
	std::unordered_map<cxl_kv_key, cxl_kv_lookup_result, KeyHash, SameKey> map;
	std::vector<cxl_kv_lookup_result> results(batch), expected(batch);
	std::vector<cxl_kv_key> asked(batch * nr_batches);
	std::vector<double> ours, theirs;
	std::mt19937_64 random(1);

	for (const cxl_kv_key &key : keys)
		map[key] = {CXL_KV_HIT, CXL_KV_TIER_HOT, 1};
	for (cxl_kv_key &key : asked)
		key = keys[random() % keys.size()];
	for (size_t round = 0; round < nr_rounds; round++) {
		ours.push_back(ns_of(
			[&] {
				for (size_t i = 0; i < asked.size(); i += batch)
					cxl_kv_lookup(ns, &asked[i], batch, results.data());
			},
			nr_batches));
		theirs.push_back(ns_of(
			[&] {
				for (size_t i = 0; i < asked.size(); i += batch)
					for (size_t j = 0; j < batch; j++) {
						auto it = map.find(asked[i + j]);
						expected[j] = it == map.end()
								      ? cxl_kv_lookup_result{}
								      : it->second;
					}
			},
			nr_batches));
	}
	for (size_t j = 0; j < batch; j++)
		if (results[j].found != expected[j].found)
			return printf("look-ups differ\n"), false;
	return report("look up 256 keys", "256 in an unordered_map", median(ours), median(theirs));
}

bool measure_jobs(cxl_kv *kv, cxl_kv_ns *ns, const std::vector<cxl_kv_key> &keys, Wait wait,
		  int other_cpu)
{
	std::vector<double> ours, theirs, copies;
	std::vector<uint8_t> bytes(small_bytes);
	PingPong threads(other_cpu);
	Copy copy;
	int error = 0;
	auto repeat = [](const std::function<void(int)> &trip) {
		return ns_of(
			[&] {
				for (int i = 0; i < nr_trips; i++)
					trip(i);
			},
			nr_trips);
	};

	for (size_t round = 0; round < nr_rounds; round++) {
		ours.push_back(repeat([&](int i) {
			error |= run_job(kv, ns, CXL_KV_LOAD, &keys[static_cast<size_t>(i)], 1,
					 bytes.data(), wait);
		}));
		theirs.push_back(repeat([&](int) { threads.trip(); }));
		copies.push_back(repeat([&](int) { copy.run(); }));
	}
	if (error || !copy.good())
		return printf("loads failed\n"), false;
	printf("copy of a load               %9.1f ns\n", median(copies));
	return report(wait == Wait::Look ? "load, polled, without copy"
					 : "load, slept for, without copy",
		      "round trip of two threads", median(ours) - median(copies), median(theirs));
}

} // namespace

int main()
{
	DaemonProcess daemon({"HOT__LIMIT=128MiB", "COLD__SIZE=64MiB", "OBJECTS__CHUNK_KIB=4",
			      "OBJECTS__SIZE=64MiB"});
	const auto [ours, others] = two_cpus();
	run_on(others);
	daemon.start();
	run_on(ours);
	cxl_kv_options options{};
	cxl_kv *kv = nullptr;
	options.size = sizeof(options);
	options.socket_path = daemon.socket().c_str();
	if (cxl_kv_open(&options, &kv))
		return 1;
	cxl_kv_ns *ns = open_namespace(kv);
	std::vector<uint8_t> bytes(batch * small_bytes);
	std::vector<cxl_kv_key> keys(nr_keys);
	std::mt19937_64 random(2);
	for (cxl_kv_key &key : keys)
		key = random_key(random);
	int rc = ns ? 0 : 1;
	for (size_t i = 0; i < nr_keys && !rc; i += batch)
		rc = run_job(kv, ns, CXL_KV_STORE, &keys[i], batch, bytes.data(), Wait::Sleep);
	if (rc) {
		fprintf(stderr, "cannot store: %s\n%s", strerror(-rc), daemon.log().c_str());
	} else {
		measure_lookups(ns, keys);
		measure_jobs(kv, ns, keys, Wait::Look, others);
		measure_jobs(kv, ns, keys, Wait::Sleep, others);
	}
	cxl_kv_ns_close(ns);
	cxl_kv_close(kv);
	return rc ? 1 : 0;
}
