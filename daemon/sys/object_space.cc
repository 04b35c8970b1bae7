/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/object_space.h"

#include <fcntl.h>
#include <fmt/format.h>

namespace cxlkv {

const std::vector<const char *> SpaceSpec::identity_fields = {
	"model",        "revision",       "weights_hash", "tokenizer", "attention",
	"rope_scaling", "hash_algorithm", "element_type", "layout",    "rope_theta",
	"hash_seed",    "nr_layers",      "nr_kv_heads",  "head_dim",  "tokens_per_block",
	"tp_rank",      "tp_size",        "pp_rank",      "pp_size",
};

std::string SpaceSpec::difference(const SpaceSpec &other) const
{
	for (size_t i = 0; i < identity.size(); i++)
		if (identity[i] != other.identity[i])
			return identity_fields[i];
	for (const auto &[group, bytes] : groups)
		if (auto it = other.groups.find(group);
		    it == other.groups.end() || it->second != bytes)
			return fmt::format("group {}", group);
	for (const auto &[group, bytes] : other.groups)
		if (!groups.count(group))
			return fmt::format("group {}", group);
	return "";
}

Result<IndexFile> IndexFile::create(uint64_t bytes)
{
	IndexFile file;

	file.fd_ = Fd(memfd_create("cxl_kv_index", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (!file.fd_ || ftruncate(file.fd_.get(), static_cast<off_t>(bytes)))
		return sys_error("index of a namespace");
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			file.fd_.get(), 0);
	if (at == MAP_FAILED)
		return sys_error("map the index of a namespace");
	file.mapping_ = Mapping(at, bytes);
	/* Our mapping stays writable; who gets the file can make none that is. */
	if (fcntl(file.fd_.get(), F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		return sys_error("seal the index of a namespace");
	return file;
}

} // namespace cxlkv
