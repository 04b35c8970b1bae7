/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "engine/prefix_store.h"
#include "base/log.h"
#include "engine/hash.h"

#include <algorithm>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace cxlkv::engine {

namespace {

constexpr uint32_t group = 0;
constexpr uint32_t deadline_ms = 2000; /* then computing is the better way */

struct CloseKv {
	void operator()(cxl_kv *kv) const { cxl_kv_close(kv); }
};
struct CloseNs {
	void operator()(cxl_kv_ns *ns) const { cxl_kv_ns_close(ns); }
};

template <size_t n> void set_text(char (&field)[n], const std::string &text)
{
	std::copy_n(text.begin(), std::min(text.size(), n - 1), field);
}

/* The kernels are part of it: another instruction set rounds differently. */
cxl_kv_identity identity_of(const Model &model, const KvShape &shape)
{
	cxl_kv_identity id{};

	id.size = sizeof(id);
	id.nr_layers = shape.layers;
	id.nr_kv_heads = model.shape.kv_heads;
	id.head_dim = shape.head_dim;
	id.tokens_per_block = shape.tokens_per_block;
	id.tp_size = id.pp_size = 1;
	id.rope_theta = 10000;
	set_text(id.model, "tiny-llama");
	set_text(id.weights_hash, fmt::format("{:016x}", model.weights_hash));
	set_text(id.tokenizer, "bytes");
	set_text(id.attention, fmt::format("full, {}", kernel_target()));
	set_text(id.hash_algorithm, "engine/hash.h");
	set_text(id.element_type, shape.type == KvType::F16 ? "f16" : "f32");
	set_text(id.layout, "[head][K V][token][dim]");
	return id;
}

class ObjectPrefixStore : public PrefixStore {
public:
	explicit ObjectPrefixStore(const KvShape &shape) : shape_(shape) {}

	Result<> open(const Model &model, const std::string &socket);

	uint32_t load(std::span<const uint8_t> tokens, std::byte *kv) override;
	void store(std::span<const uint8_t> tokens, const std::byte *kv) override;
	[[nodiscard]] const PrefixStats &stats() const override { return stats_; }

private:
	[[nodiscard]] std::vector<cxl_kv_key> keys_of(std::span<const uint8_t> tokens) const;
	std::vector<int32_t> run(cxl_kv_class job_class, std::span<const cxl_kv_key> keys,
				 uint32_t first_block, std::byte *kv);
	int wait(cxl_kv_class job_class);

	KvShape shape_;
	std::unique_ptr<cxl_kv, CloseKv> kv_;
	std::unique_ptr<cxl_kv_ns, CloseNs> ns_; /* closed before the connection */
	PrefixStats stats_;
};

Result<> ObjectPrefixStore::open(const Model &model, const std::string &socket)
{
	const cxl_kv_identity id = identity_of(model, shape_);
	const cxl_kv_group groups[] = {{group, shape_.heads * shape_.block_bytes()}};
	cxl_kv_ns_options wanted{sizeof(wanted), 0, "kv-engine", &id, groups, 1};
	cxl_kv_options options{};
	char field[32] = "";
	cxl_kv *kv = nullptr;
	cxl_kv_ns *ns = nullptr;

	options.size = sizeof(options);
	options.name = "kv-engine";
	options.socket_path = socket.empty() ? nullptr : socket.c_str();
	if (int rc = cxl_kv_open(&options, &kv); rc < 0)
		return error(-rc, fmt::format("connect to the manager: {}", strerror(-rc)));
	kv_.reset(kv);
	int rc = cxl_kv_ns_open(kv, &wanted, field, sizeof(field), &ns);
	ns_.reset(ns);
	if (rc == -ESTALE)
		return error(ESTALE, fmt::format("the prefixes that are stored have another {}; "
						 "give the manager another store",
						 field));
	return rc < 0 ? error(-rc, fmt::format("open the prefix store: {}", strerror(-rc))) : ok();
}

/* A block is the same where all tokens before it are too: each key goes on from the last. */
std::vector<cxl_kv_key> ObjectPrefixStore::keys_of(std::span<const uint8_t> tokens) const
{
	std::vector<cxl_kv_key> keys(tokens.size() / shape_.tokens_per_block);
	uint64_t words[CXL_KV_KEY_BYTES / 8] = {1, 2, 3, 4};

	for (size_t i = 0; i < keys.size(); i++) {
		const auto block =
			tokens.subspan(i * shape_.tokens_per_block, shape_.tokens_per_block);
		for (uint64_t &word : words)
			word = hash(block.data(), block.size(), word);
		memcpy(keys[i].bytes, words, sizeof(words));
		keys[i].group = group;
	}
	return keys;
}

/* Its completion, in poll()'s good time: the library ends a job at its deadline. */
int ObjectPrefixStore::wait(cxl_kv_class job_class)
{
	pollfd event{cxl_kv_event_fd(kv_.get(), job_class), POLLIN, 0};
	cxl_kv_completion done{};
	eventfd_t count;

	for (;;) {
		int rc = cxl_kv_poll(kv_.get(), job_class, &done, 1);
		if (rc)
			return rc < 0 ? rc : 0;
		poll(&event, 1, -1);
		eventfd_read(event.fd, &count);
	}
}

/* One job over these blocks of every head, to its end; each key's result. */
std::vector<int32_t> ObjectPrefixStore::run(cxl_kv_class job_class,
					    std::span<const cxl_kv_key> keys, uint32_t first_block,
					    std::byte *kv)
{
	std::vector<int32_t> results(keys.size());
	std::vector<iovec> iovs;
	std::vector<cxl_kv_transfer> transfers;
	cxl_kv_job job{};

	for (uint32_t i = 0; i < keys.size(); i++)
		for (uint32_t head = 0; head < shape_.heads; head++)
			iovs.push_back({kv + shape_.block_offset(head, first_block + i),
					shape_.block_bytes()});
	for (size_t i = 0; i < keys.size(); i++)
		transfers.push_back({keys[i], 0, &iovs[i * shape_.heads], shape_.heads});
	job.size = sizeof(job);
	job.deadline_ms = deadline_ms;
	job.priority = 35;
	job.transfers = transfers.data();
	job.nr = transfers.size();
	job.results = results.data();
	int rc = job_class == CXL_KV_LOAD ? cxl_kv_submit_load(ns_.get(), &job, nullptr)
					  : cxl_kv_submit_store(ns_.get(), &job, nullptr);
	if (!rc)
		rc = wait(job_class);
	if (rc)
		std::fill(results.begin(), results.end(), rc);
	return results;
}

uint32_t ObjectPrefixStore::load(std::span<const uint8_t> tokens, std::byte *kv)
{
	const auto keys = keys_of(tokens.first(tokens.size() - 1));
	const size_t nr = cxl_kv_lookup_prefix(ns_.get(), keys.data(), keys.size());

	stats_.nr_lookups++;
	stats_.nr_found += nr > 0;
	if (!nr)
		return 0;
	const auto results = run(CXL_KV_LOAD, std::span(keys).first(nr), 0, kv);
	const auto good = static_cast<uint32_t>(
		std::find_if(results.begin(), results.end(), [](int32_t rc) { return rc != 0; }) -
		results.begin());
	stats_.nr_loaded += good;
	stats_.nr_failed += nr - good;
	return good * shape_.tokens_per_block;
}

void ObjectPrefixStore::store(std::span<const uint8_t> tokens, const std::byte *kv)
{
	const auto keys = keys_of(tokens);
	const size_t nr = cxl_kv_lookup_prefix(ns_.get(), keys.data(), keys.size());

	if (nr == keys.size())
		return;
	/* A store only reads what an iovec, which knows no const, points to. */
	for (int32_t rc : run(CXL_KV_STORE, std::span(keys).subspan(nr), static_cast<uint32_t>(nr),
			      const_cast<std::byte *>(kv))) {
		stats_.nr_stored += rc == 0;
		stats_.nr_failed += rc != 0 && rc != -EEXIST;
	}
}

} // namespace

Result<std::unique_ptr<PrefixStore>> open_prefix_store(const Model &model, const KvShape &shape,
						       const std::string &socket)
{
	auto store = std::make_unique<ObjectPrefixStore>(shape);

	if (Result<> r = store->open(model, socket); !r)
		return r.error();
	return std::unique_ptr<PrefixStore>(std::move(store));
}

} // namespace cxlkv::engine
