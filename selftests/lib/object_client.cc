// SPDX-License-Identifier: LGPL-2.1-or-later
#include "lib/object_client.h"

#include <chrono>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <sys/eventfd.h>

namespace cxlkv::test {

cxl_kv_identity identity()
{
	cxl_kv_identity id{};

	id.size = sizeof(id);
	id.nr_layers = 2;
	id.nr_kv_heads = 4;
	id.head_dim = 64;
	id.tokens_per_block = 16;
	id.tp_size = id.pp_size = 1;
	id.rope_theta = 10000;
	strcpy(id.model, "tiny-llama");
	strcpy(id.revision, "r1");
	return id;
}

cxl_kv_key key(uint64_t number, uint32_t group)
{
	cxl_kv_key result{};

	memcpy(result.bytes, &number, sizeof(number));
	result.group = group;
	return result;
}

std::vector<cxl_kv_key> keys(uint64_t first, uint64_t nr)
{
	std::vector<cxl_kv_key> result;

	for (uint64_t i = 0; i < nr; i++)
		result.push_back(key(first + i));
	return result;
}

Bytes bytes_of(const cxl_kv_key &of, size_t nr)
{
	Bytes bytes(nr);
	uint64_t number;

	memcpy(&number, of.bytes, sizeof(number));
	uint64_t state = number * 0x9e3779b97f4a7c15 + of.group + 1;
	for (uint8_t &byte : bytes) {
		state = state * 6364136223846793005 + 1442695040888963407;
		byte = static_cast<uint8_t>(state >> 56);
	}
	return bytes;
}

ObjectClient::ObjectClient(const std::string &socket, const cxl_kv_identity &id,
			   const std::string &name)
{
	const cxl_kv_group groups[] = {{kGroup, kObjectBytes}};
	cxl_kv_options options{};
	cxl_kv_ns_options ns_options{};

	options.size = sizeof(options);
	options.loss_deadline_ms = 20000;
	options.socket_path = socket.c_str();
	options.log = [](void *, const char *) {};
	ns_options = {sizeof(ns_options), 0, name.c_str(), &id, groups, 1};
	int rc = cxl_kv_open(&options, &kv);
	if (!rc)
		rc = cxl_kv_ns_open(kv, &ns_options, nullptr, 0, &ns);
	if (rc) {
		cxl_kv_close(kv);
		throw std::runtime_error(std::string("cannot open a namespace: ") + strerror(-rc));
	}
}

ObjectClient::~ObjectClient()
{
	cxl_kv_ns_close(ns);
	cxl_kv_close(kv);
}

int ObjectClient::submit(cxl_kv_class job_class, const std::vector<cxl_kv_transfer> &transfers,
			 uint32_t deadline_ms, uint64_t *id, int32_t *results, uint32_t flags)
{
	cxl_kv_job job{};

	job.size = sizeof(job);
	job.flags = flags;
	job.deadline_ms = deadline_ms;
	job.priority = 35;
	job.transfers = transfers.data();
	job.nr = transfers.size();
	job.results = results;
	return job_class == CXL_KV_LOAD ? cxl_kv_submit_load(ns, &job, id)
					: cxl_kv_submit_store(ns, &job, id);
}

int32_t ObjectClient::wait(cxl_kv_class job_class, uint64_t id)
{
	using Clock = std::chrono::steady_clock;
	const auto end = Clock::now() + std::chrono::seconds(60);

	while (Clock::now() < end) {
		cxl_kv_completion completion{};
		pollfd event{cxl_kv_event_fd(kv, job_class), POLLIN, 0};
		eventfd_t count;

		if (cxl_kv_poll(kv, job_class, &completion, 1) == 1) {
			if (completion.id != id)
				throw std::runtime_error("another job's completion");
			return completion.error;
		}
		if (::poll(&event, 1, 1000) == 1)
			eventfd_read(event.fd, &count);
	}
	throw std::runtime_error("a job did not end");
}

std::vector<int32_t> ObjectClient::store(const std::vector<cxl_kv_key> &which, uint32_t deadline_ms)
{
	std::vector<int32_t> results(which.size());
	std::vector<Bytes> bytes;
	std::vector<iovec> iovs(which.size());
	std::vector<cxl_kv_transfer> transfers;
	uint64_t id = 0;

	for (const cxl_kv_key &k : which)
		bytes.push_back(bytes_of(k));
	for (size_t i = 0; i < which.size(); i++) {
		iovs[i] = {bytes[i].data(), bytes[i].size()};
		transfers.push_back({which[i], 0, &iovs[i], 1});
	}
	if (int rc = submit(CXL_KV_STORE, transfers, deadline_ms, &id, results.data()))
		return std::vector<int32_t>(which.size(), rc);
	wait(CXL_KV_STORE, id);
	return results;
}

std::vector<int32_t> ObjectClient::load(const std::vector<cxl_kv_key> &which,
					std::vector<Bytes> *bytes, uint32_t deadline_ms)
{
	std::vector<int32_t> results(which.size());
	std::vector<iovec> iovs(which.size());
	std::vector<cxl_kv_transfer> transfers;
	uint64_t id = 0;

	bytes->assign(which.size(), Bytes(kObjectBytes));
	for (size_t i = 0; i < which.size(); i++) {
		iovs[i] = {(*bytes)[i].data(), kObjectBytes};
		transfers.push_back({which[i], 0, &iovs[i], 1});
	}
	if (int rc = submit(CXL_KV_LOAD, transfers, deadline_ms, &id, results.data()))
		return std::vector<int32_t>(which.size(), rc);
	wait(CXL_KV_LOAD, id);
	return results;
}

int32_t ObjectClient::load_one(const cxl_kv_key &k, uint32_t deadline_ms)
{
	std::vector<Bytes> bytes;
	int32_t result = load({k}, &bytes, deadline_ms)[0];

	return result ? result : bytes[0] != bytes_of(k);
}

cxl_kv_lookup_result ObjectClient::lookup(const cxl_kv_key &k)
{
	cxl_kv_lookup_result result{};

	cxl_kv_lookup(ns, &k, 1, &result);
	return result;
}

} // namespace cxlkv::test
