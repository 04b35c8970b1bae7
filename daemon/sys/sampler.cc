/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/sampler.h"

#include "base/log.h"

#include <bit>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <cxl_kv_bpf.skel.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/sysinfo.h>

namespace cxlkv {

namespace {

namespace fs = std::filesystem;

uint32_t log2_of(uint64_t power_of_two)
{
	return static_cast<uint32_t>(std::countr_zero(power_of_two));
}

int quiet(enum libbpf_print_level, const char *, va_list)
{
	return 0;
}

/* The maps that people look at with bpftool. */
std::vector<std::pair<const char *, bpf_map *>> pinned_maps(cxl_kv_bpf *programs)
{
	return {{"heads", programs->maps.heads},
		{"touched", programs->maps.touched},
		{"totals", programs->maps.totals}};
}

} // namespace

void Sampler::Unload::operator()(cxl_kv_bpf *programs) const
{
	cxl_kv_bpf__destroy(programs);
}

void Sampler::FreeRing::operator()(ring_buffer *ring) const
{
	ring_buffer__free(ring);
}

std::unique_ptr<Sampler> Sampler::create()
{
	std::unique_ptr<Sampler> self(new Sampler);

	libbpf_set_print(quiet);
	if (auto loaded = self->load(); !loaded) {
		self->programs_.reset();
		self->why_.emplace_back("bpf", loaded.error().what);
		return self;
	}
	self->attach_all();
	return self;
}

std::unique_ptr<Sampler> Sampler::none(std::string reason)
{
	std::unique_ptr<Sampler> self(new Sampler);

	self->wanted_ = false;
	self->why_.emplace_back("bpf", std::move(reason));
	return self;
}

Sampler::~Sampler()
{
	for (bpf_link *link : pmu_links_)
		bpf_link__destroy(link);
	if (programs_)
		unpin();
}

Result<> Sampler::load()
{
	programs_.reset(cxl_kv_bpf__open());
	if (!programs_)
		return sys_error("open the BPF object");
	if (int code = cxl_kv_bpf__load(programs_.get()); code)
		return error(-code,
			     std::string("load the BPF programs: ") + strerror(-code) +
				     (code == -EPERM ? " (needs CAP_BPF and CAP_PERFMON)" : ""));
	ring_.reset(
		ring_buffer__new(bpf_map__fd(programs_->maps.touched), on_record, this, nullptr));
	if (!ring_)
		return sys_error("BPF ring buffer");
	return pin();
}

/* What an earlier daemon that was killed left pinned is taken away first. */
Result<> Sampler::pin()
{
	std::error_code ec;

	unpin();
	fs::create_directory(kPinDir, ec);
	if (ec)
		return error(ec.value(), std::string("make ") + kPinDir + ": " + ec.message() +
						 "; is a bpffs mounted at /sys/fs/bpf?");
	for (auto [name, map] : pinned_maps(programs_.get()))
		if (int code = bpf_map__pin(map, (fs::path(kPinDir) / name).c_str()); code)
			return error(-code, std::string("pin ") + name + ": " + strerror(-code));
	return ok();
}

void Sampler::unpin()
{
	std::error_code ec;

	for (auto [name, map] : pinned_maps(programs_.get()))
		fs::remove(fs::path(kPinDir) / name, ec);
	fs::remove(kPinDir, ec);
}

void Sampler::attach_all()
{
	auto try_attach = [&](const char *name, bpf_program *program, bpf_link **link) {
		*link = bpf_program__attach(program);
		if (!*link)
			why_.emplace_back(name, strerror(errno));
		return *link != nullptr;
	};
	try_attach("page_faults", programs_->progs.on_page_fault, &programs_->links.on_page_fault);
	try_attach("migrations", programs_->progs.on_migrate, &programs_->links.on_migrate);
	auto pmu = attach_pmu();
	if (!pmu)
		why_.emplace_back("pmu", pmu.error().what);
	bool module = try_attach("module", programs_->progs.on_module_access,
				 &programs_->links.on_module_access);
	if (!module)
		why_.back().second = "no tracepoint cxl_kv_access: the module is not loaded";
	source_ = pmu ? "pmu" : module ? "module" : "none";
}

Result<> Sampler::attach_pmu()
{
	auto events = open_memory_samples();

	if (!events)
		return events.error();
	for (const PmuEvent &event : *events) {
		/* The link owns its file from here on. */
		Fd file(fcntl(event.fd(), F_DUPFD_CLOEXEC, 0));
		bpf_link *link =
			bpf_program__attach_perf_event(programs_->progs.on_pmu_sample, file.get());
		if (!link)
			return sys_error("attach to the PMU");
		file.release();
		pmu_links_.push_back(link);
	}
	pmu_events_ = std::move(*events);
	return ok();
}

void Sampler::add(const Arena &arena, uint64_t module_id)
{
	if (!programs_)
		return;
	const Geometry &g = arena.geometry;
	cxl_kv_bpf_arena value{};
	value.base = arena.options.client_base;
	value.bytes = g.bytes();
	value.page_shift = log2_of(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
	value.block_shift = log2_of(g.block_bytes);
	value.blocks_per_head = g.blocks_per_head();
	value.nr_heads = g.nr_heads();
	value.number = arena.options.number;
	auto pid = static_cast<uint32_t>(arena.options.pid);
	if (bpf_map__update_elem(programs_->maps.arenas, &module_id, sizeof(module_id), &value,
				 sizeof(value), BPF_ANY) ||
	    bpf_map__update_elem(programs_->maps.clients, &pid, sizeof(pid), &module_id,
				 sizeof(module_id), BPF_ANY))
		log_warning("arena {} is not sampled: {}", arena.options.number, strerror(errno));
}

void Sampler::remove(const Arena &arena, uint64_t module_id)
{
	if (!programs_)
		return;
	auto pid = static_cast<uint32_t>(arena.options.pid);
	bpf_map__delete_elem(programs_->maps.clients, &pid, sizeof(pid), 0);
	bpf_map__delete_elem(programs_->maps.arenas, &module_id, sizeof(module_id), 0);
	for (uint32_t head = 0; head < arena.geometry.nr_heads(); head++) {
		cxl_kv_bpf_head_key key{arena.options.number, head};
		bpf_map__delete_elem(programs_->maps.heads, &key, sizeof(key), 0);
	}
}

int Sampler::on_record(void *self, void *data, size_t bytes)
{
	auto *sampler = static_cast<Sampler *>(self);

	if (bytes == sizeof(cxl_kv_bpf_touch))
		(*sampler->use_)(*static_cast<const cxl_kv_bpf_touch *>(data));
	return --sampler->left_ ? 0 : -ECANCELED;
}

void Sampler::drain(size_t max, const std::function<void(const cxl_kv_bpf_touch &)> &use)
{
	if (!ring_ || !max)
		return;
	use_ = &use;
	left_ = max;
	ring_buffer__consume(ring_.get());
	use_ = nullptr;
}

std::vector<uint64_t> Sampler::throttled_by_cpu() const
{
	std::vector<uint64_t> nr;

	for (const PmuEvent &event : pmu_events_)
		nr.push_back(event.nr_throttled());
	return nr;
}

std::vector<cxl_kv_bpf_totals> Sampler::totals_by_cpu() const
{
	if (!programs_)
		return {};
	std::vector<cxl_kv_bpf_totals> by_cpu(static_cast<size_t>(libbpf_num_possible_cpus()));
	uint32_t zero = 0;
	if (bpf_map__lookup_elem(programs_->maps.totals, &zero, sizeof(zero), by_cpu.data(),
				 by_cpu.size() * sizeof(by_cpu[0]), 0))
		by_cpu.clear();
	return by_cpu;
}

cxl_kv_bpf_totals Sampler::totals() const
{
	cxl_kv_bpf_totals sum{};

	for (const cxl_kv_bpf_totals &cpu : totals_by_cpu()) {
		for (int i = 0; i < CXL_KV_BPF_NR_SOURCES; i++)
			sum.events[i] += cpu.events[i];
		sum.lost += cpu.lost;
		sum.migrated_pages += cpu.migrated_pages;
		sum.migrate_failed_pages += cpu.migrate_failed_pages;
		sum.faults += cpu.faults;
	}
	return sum;
}

} // namespace cxlkv
