/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A namespace of objects: what identifies it, and the file in which clients
 * look keys up. Two that differ in the tenant's salt are different ones, even
 * under one name; under one name and salt all else has to be equal.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cxlkv {

struct SpaceSpec {
	std::string name;
	std::string salt; /* of the tenant, as hexadecimal digits */
	/* Every field of an identity but the salt, in the order of identity_fields. */
	std::vector<std::string> identity;
	std::map<uint32_t, uint32_t> groups; /* bytes of an object, by group */

	/* Names of the fields, as struct cxl_kv_identity has them. */
	static const std::vector<const char *> identity_fields;
	/* "", or the field in which the two differ: "model", "group 3". */
	[[nodiscard]] std::string difference(const SpaceSpec &other) const;
	[[nodiscard]] bool same_place(const SpaceSpec &other) const
	{
		return name == other.name && salt == other.salt;
	}
};

/* The index's memory: ours to write, a client's to read. */
class IndexFile {
public:
	static Result<IndexFile> create(uint64_t bytes);
	[[nodiscard]] std::byte *data() const { return mapping_.data(); }
	[[nodiscard]] int fd() const { return fd_.get(); }

private:
	Fd fd_;
	Mapping mapping_;
};

} // namespace cxlkv
