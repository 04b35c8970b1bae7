/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What tests of keyed objects share: an identity, keys, bytes that tell which key they are of. */
#pragma once

#include "lib/daemon_process.h"

#include <cxl_kv.h>
#include <string>
#include <vector>

namespace cxlkv::test {

using Bytes = std::vector<uint8_t>;

constexpr uint32_t kGroup = 3, kObjectBytes = 100'000; /* two chunks, the second one in part */

cxl_kv_identity identity();
cxl_kv_key key(uint64_t number, uint32_t group = kGroup);
std::vector<cxl_kv_key> keys(uint64_t first, uint64_t nr);
/* What the tests store under a key. */
Bytes bytes_of(const cxl_kv_key &key, size_t nr = kObjectBytes);

/* One connection and one namespace; throws where it cannot be had. */
class ObjectClient {
public:
	explicit ObjectClient(const std::string &socket, const cxl_kv_identity &id = identity(),
			      const std::string &name = "test");
	~ObjectClient();
	ObjectClient(const ObjectClient &) = delete;
	ObjectClient &operator=(const ObjectClient &) = delete;

	/* One job over all keys, to its end; each key's result. */
	std::vector<int32_t> store(const std::vector<cxl_kv_key> &keys,
				   uint32_t deadline_ms = 20000);
	std::vector<int32_t> load(const std::vector<cxl_kv_key> &keys, std::vector<Bytes> *bytes,
				  uint32_t deadline_ms = 20000);
	int32_t store_one(const cxl_kv_key &key) { return store({key})[0]; }
	/* 0 where what came is what the tests stored; 1 where it is not. */
	int32_t load_one(const cxl_kv_key &key, uint32_t deadline_ms = 20000);
	cxl_kv_lookup_result lookup(const cxl_kv_key &key);
	/* Until the job's completion comes; its error. */
	int32_t wait(cxl_kv_class job_class, uint64_t id);
	/* -errno, and the job's id. */
	int submit(cxl_kv_class job_class, const std::vector<cxl_kv_transfer> &transfers,
		   uint32_t deadline_ms, uint64_t *id, int32_t *results = nullptr,
		   uint32_t flags = 0);

	cxl_kv *kv = nullptr;
	cxl_kv_ns *ns = nullptr;
};

} // namespace cxlkv::test
