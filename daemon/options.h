/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The daemon's configuration: defaults, then cxl-kvd.toml, then its drop-in
 * folder, then CXL_KV_<TABLE>__<KEY> of the environment. Every error names the
 * file, the line, the key and what is allowed. option_keys.cc has the keys.
 */
#pragma once

#include "base/result.h"
#include "core/policy.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cxlkv {

/* A tier's size: bytes, or permil of what its nodes have. */
struct SizeSpec {
	uint64_t bytes = 0;
	uint32_t permil = 0; /* not 0: bytes is unused */
};

struct Options {
	struct {
		std::string socket = "/run/cxl-kv/control.sock";
		std::string log_level = "info";
		std::string measured = "/var/lib/cxl-kv/bench.json"; /* by cxl-kv bench */
		uint32_t interval_ms = 20;
		bool enabled = true; /* false: nothing moves or spills by itself */
	} daemon;
	struct {
		SizeSpec limit{0, 250};
		std::vector<int> nodes;   /* empty = auto */
		std::vector<int> weights; /* empty = auto */
		uint32_t high_permil = 950;
		uint32_t low_permil = 900;
	} hot;
	struct {
		SizeSpec limit{0, 800};
		std::vector<int> nodes;   /* empty = auto */
		std::vector<int> weights; /* empty = auto */
	} warm;
	struct {
		std::string path = "/var/lib/cxl-kv/spill";
		std::vector<std::string> more_paths;
		uint64_t size_bytes = 16ull << 30;
		uint32_t queue_depth = 32;
		uint32_t orphan_grace_s = 120;
		uint32_t write_MBps = 0; /* 0 = no cap */
		std::string wipe = "none";
		std::string format = "raw"; /* of arenas that did not choose one */
	} cold;
	struct {
		uint64_t size_bytes = 0; /* 0 = what the tiers hold, up to 4 Mi chunks */
		uint32_t chunk_KiB = 64; /* a power of two */
	} objects;
	struct {
		uint32_t max_MBps = 1000;
		bool latency_gate = true; /* no promotions to a node that is the slower one */
	} mover;
	struct {
		std::string source = "auto"; /* BPF: auto = where the module is loaded, pmu =
						without it too, off */
		std::string way =
			"accessed"; /* of the module: accessed bits, or unmap and refault */
		uint32_t interval_ms = 1000;
		uint32_t min_interval_ms = 0; /* where accesses change; 0 = interval_ms / 2 */
		uint32_t cpu_permil = 20;     /* of one CPU, each arena */
		bool flush_tlb = false; /* needed under emulators, and to tell writes from reads */
	} sampling;
	PolicyOptions policy;        /* and of its sessions */
	uint32_t lease_limit_ms = 0; /* 0: a lease lasts until it is given back */
	Tenant default_tenant{"default", {}, {}};
	std::vector<Tenant> tenants; /* the others */
};

/* What is read, in this order: file, where it is there, and its drop-ins. */
Result<std::vector<std::string>> config_files(const std::string &file, bool may_be_absent);

/* file may be absent only where it is the default one. "" = no file. */
Result<Options> load_options(const std::string &file, bool may_be_absent);

/* "24MiB", "1G", "4096": bytes. */
Result<uint64_t> parse_bytes(const std::string &text);

struct OptionChange {
	std::string key, before, after;
	bool live = false; /* false: it takes a restart */
};
/* Copies what can change while the daemon runs, and says how wanted differs from options. */
std::vector<OptionChange> apply_live(Options &options, const Options &wanted);

/* Settings by their keys ("policy.alpha", "0.3"), on top of options; the values as the environment
 * has them. An error names the key and what it takes, and nothing is set. */
Result<Options> with_settings(const Options &options,
			      const std::vector<std::pair<std::string, std::string>> &settings);

struct OptionValue {
	std::string key, value, allowed;
	bool live = false; /* can change while the daemon runs */
};
std::vector<OptionValue> option_values(const Options &options);

/* One line a key: table.key and what it takes. */
std::string describe_options();

} // namespace cxlkv
