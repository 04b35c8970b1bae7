/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cxl-kvd: the manager of KV arenas. This file wires the parts, starts the
 * threads and ends them. The main thread serves the control socket; the I/O
 * thread (fault server), the policy thread and the mover have their own files.
 */
#include "base/log.h"
#include "base/standard_files.h"
#include "base/written.h"
#include "control.h"
#include "node_spread.h"
#include "options.h"
#include "policy_thread.h"
#include "reload.h"
#include "status.h"
#include "tiers.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <new>
#include <nlohmann/json.hpp>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <thread>

using namespace cxlkv;

namespace {

constexpr const char *kDefaultConfig = "/etc/cxl-kv/cxl-kvd.toml";

/* Blocked in every thread; the main thread reads them from a file. */
Fd block_signals()
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, nullptr);
	signal(SIGPIPE, SIG_IGN);
	return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

Result<std::unique_ptr<SpillStore>> open_store(const Options &options)
{
	StoreOptions store_options;
	store_options.path = options.cold.path;
	store_options.more_paths = options.cold.more_paths;
	store_options.size_bytes = options.cold.size_bytes;
	store_options.queue_depth = options.cold.queue_depth;
	store_options.write_bytes_per_s = uint64_t{options.cold.write_MBps} * 1000000;
	store_options.wipe = options.cold.wipe == "secure"    ? StoreOptions::Wipe::Secure
			     : options.cold.wipe == "discard" ? StoreOptions::Wipe::Discard
							      : StoreOptions::Wipe::None;
	auto store = SpillStore::open(store_options);
	if (store)
		return store;
	Error wrong = store.error().in("cold tier");
	if (wrong.code == EROFS || (wrong.code == EPERM && options.cold.path.starts_with("/dev/")))
		wrong.what += "; where systemd started the daemon, its unit has to allow this "
			      "path: cxl-kvd.toml(5), EXAMPLES, says how";
	return wrong;
}

/* Beside the spill file; a device has no folder for it. */
std::string objects_path(const Options &options)
{
	const std::string &path = options.cold.path;

	if (!path.starts_with("/dev/"))
		return path + ".objects";
	return "/var/lib/cxl-kv" + path.substr(path.rfind('/')) + ".objects";
}

/* What the last daemon left, or nothing: then the store's records of it have no use. */
SavedObjects saved_objects(const Options &options, SpillStore &store)
{
	const uint32_t chunk_bytes = options.objects.chunk_KiB << 10;
	auto saved = load_objects(objects_path(options));

	if (saved && saved->chunk_bytes == chunk_bytes &&
	    (!options.objects.size_bytes ||
	     saved->nr_chunks <= options.objects.size_bytes / chunk_bytes))
		return std::move(*saved);
	if (saved)
		log_warning("objects.size or objects.chunk_KiB changed: stored objects are given "
			    "up");
	else if (saved.error().code != ENOENT)
		log_warning("stored objects are lost: {}", saved.error().what);
	store.drop_arena(ObjectPool::key);
	return {};
}

/* Objects may fill all tiers; with small chunks and a large store the books would be the limit. */
ObjectOptions object_options(const Options &options, const Tiers &tiers, const SavedObjects &saved)
{
	constexpr uint64_t max_chunks = 4u << 20;
	ObjectOptions out;
	uint64_t bytes = options.objects.size_bytes;

	if (!bytes)
		bytes = tiers.hot_limit_bytes + tiers.warm_limit_bytes + options.cold.size_bytes;
	out.chunk_bytes = options.objects.chunk_KiB << 10;
	out.nr_chunks =
		static_cast<uint32_t>(std::clamp<uint64_t>(bytes / out.chunk_bytes, 1, max_chunks));
	/* A tier that is a share of memory is a little smaller after some boots. */
	if (!options.objects.size_bytes)
		out.nr_chunks =
			std::max(out.nr_chunks, std::min<uint32_t>(saved.nr_chunks, max_chunks));
	out.nr_tenants = tenants_of(options).table().size();
	out.path = objects_path(options);
	return out;
}

/* The control loop, until a signal or until the I/O thread gave up. */
Result<> serve(ControlSocket &socket, Control &control, Registry &registry, const Fd &signals,
	       const std::atomic<bool> &failed, const Reloadable &reloadable)
{
	auto handler = control.handler();
	auto last_reap = std::chrono::steady_clock::now();

	for (int fd : {signals.get(), registry.module_fd()})
		if (fd >= 0)
			if (auto watched = socket.also_wake_on(fd); !watched)
				return watched;
	while (!failed) {
		if (auto polled = socket.poll(handler, control.expire_wakes(1000)); !polled)
			return polled;
		registry.serve_module();
		auto now = std::chrono::steady_clock::now();
		if (now - last_reap >= std::chrono::seconds(1)) {
			registry.reap();
			sd_notify(0, "WATCHDOG=1");
			last_reap = now;
		}
		signalfd_siginfo info{};
		if (read(signals.get(), &info, sizeof(info)) == sizeof(info)) {
			if (info.ssi_signo == SIGHUP) {
				reload(reloadable);
				continue;
			}
			log_info("{}: stopping", strsignal(static_cast<int>(info.ssi_signo)));
			return ok();
		}
	}
	return error(EIO, "the I/O thread gave up");
}

/* Null: native mode. Why, unless the module simply is not there, goes into the warnings. */
std::unique_ptr<KmodDevice> attach_module(std::vector<std::string> &warnings)
{
	auto module = KmodDevice::attach();
	if (module)
		return std::move(*module);
	if (module.error().code != ENOENT) {
		log_warning("{}; going on in native mode", module.error().what);
		warnings.push_back(module.error().what + "; native mode");
	}
	return nullptr;
}

/* BPF programs go into the kernel only where the module is there to feed them, or where asked for.
 */
std::unique_ptr<Sampler> make_sampler(const Options &options, bool with_module)
{
	if (options.sampling.source == "off")
		return Sampler::none("sampling.source is off");
	if (options.sampling.source == "auto" && !with_module)
		return Sampler::none(
			"the module is not loaded; sampling.source = \"pmu\" samples without it");
	return Sampler::create();
}

/* What cxl-kv bench measured, else what is measured now; clients need not wait for it. */
void begin_bandwidths(Bandwidths &bandwidths, const Options &options, const Tiers &tiers)
{
	auto read = bandwidths.read(options.daemon.measured);

	if (read)
		return log_info("bandwidths are those of {}", options.daemon.measured);
	if (read.error().code != ENOENT)
		log_warning("{}; measuring instead", read.error().what);
	bandwidths.calibrate(tiers.hot_nodes[0],
			     tiers.warm_nodes.empty() ? -1 : tiers.warm_nodes[0],
			     options.cold.path);
}

struct Threaded {
	ControlSocket &socket;
	FaultServer &faults;
	PolicyThread &policy;
	Mover &mover;
	LatencyThread &latency;
	ObjectThread &objects;
	Registry &registry;
	Bandwidths &bandwidths;
};

/* Starts the threads, serves, and ends them in the order in which they need each other. */
Result<> run_threads(const Threaded &parts, const Options &options, const Tiers &tiers,
		     const std::function<Result<>(const std::atomic<bool> &failed)> &serve)
{
	std::atomic<bool> failed{false};
	std::thread io_thread([&] {
		if (auto result = parts.faults.run(); !result) {
			log_error("I/O thread: {}", result.error().what);
			failed = true;
			parts.socket.wake();
		}
	});
	std::thread policy_thread([&] { parts.policy.run(); });
	std::thread mover_thread([&] { parts.mover.run(); });
	std::thread latency_thread([&] { parts.latency.run(); });
	std::thread calibration([&] { begin_bandwidths(parts.bandwidths, options, tiers); });
	std::thread object_thread([&] { parts.objects.run(); });
	log_info("cxl-kvd {} serves {}; hot {} MiB on node {}, warm {} MiB, cold {}",
		 CXL_KV_VERSION, options.daemon.socket, tiers.hot_limit_bytes >> 20,
		 tiers.hot_nodes[0], tiers.warm_limit_bytes >> 20, options.cold.path);
	sd_notify(0, "READY=1");

	Result<> result = serve(failed);

	sd_notify(0, "STOPPING=1");
	calibration.join();
	parts.policy.stop();
	parts.mover.stop();
	parts.latency.stop();
	policy_thread.join();
	mover_thread.join();
	latency_thread.join();
	parts.objects.stop(!failed);
	object_thread.join();
	parts.registry.detach_all();
	parts.faults.stop();
	io_thread.join();
	return result;
}

Result<> run(Options options, const ConfigSource &source)
{
	auto tiers = resolve_tiers(options);
	if (!tiers)
		return tiers.error();
	std::vector<std::string> warnings = tier_warnings(*tiers, options.cold.size_bytes);
	for (const std::string &warning : warnings)
		log_warning("{}", warning);

	/* Socket first: a second daemon stops here and never touches the first one's store. */
	auto socket = ControlSocket::create(options.daemon.socket);
	if (!socket)
		return socket.error();
	auto store = open_store(options);
	if (!store)
		return store.error();
	SavedObjects saved = saved_objects(options, **store);
	FaultServerOptions fault_options;
	const uint64_t memory_bytes = tiers->hot_limit_bytes + tiers->warm_limit_bytes;
	fault_options.hot_limit_bytes = memory_bytes;
	fault_options.orphan_grace_ns = uint64_t{options.cold.orphan_grace_s} * 1'000'000'000;
	auto faults = FaultServer::create(fault_options, std::move(*store));
	if (!faults)
		return faults.error();
	Fd uffd_device(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
	if (!uffd_device)
		warnings.push_back(
			fmt::format("/dev/userfaultfd: {}; clients need a userfaultfd of their own",
				    strerror(errno)));
	Fd signals = block_signals();

	Bandwidths bandwidths(uint64_t{options.mover.max_MBps} * 1000000);
	LatencyThread latency(*tiers, options.mover.latency_gate);
	NodeSpread spread(*tiers, latency);
	Mover mover({tiers->hot_nodes, tiers->warm_nodes,
		     uint64_t{options.mover.max_MBps} * 1000000, MoverOptions{}.max_queued,
		     [&](bool up, uint64_t bytes) { return spread.next(up, bytes); },
		     [&](uint64_t bytes, uint64_t ns) {
			     bandwidths.add(Bandwidths::WarmToHot, bytes, ns);
		     }});
	ArenaTable arenas;
	const Placement placement(tiers->hot_nodes, tiers->warm_nodes);
	std::unique_ptr<KmodDevice> module = attach_module(warnings);
	std::unique_ptr<Sampler> sampler = make_sampler(options, module != nullptr);
	Recorder recorder([&](uint64_t connection, const std::string &line) {
		return (*socket)->reply(connection, line);
	});
	PolicyThread policy(policy_thread_options(options, *tiers), options.policy, arenas,
			    **faults, mover, *sampler, latency, placement, module.get(), recorder);
	(*faults)->on_want_room([&] { policy.kick(); });
	const Tenants tenants = tenants_of(options);
	ObjectThread objects(object_options(options, *tiers, saved), **faults);
	const bool recovered = objects.recover(std::exchange(saved, {}));
	policy.on_moved([&](const Extent &extent) { objects.moved(extent); });
	policy.on_starved([&](uint64_t bytes) { objects.give_way(bytes); });
	const uint64_t start_ns = monotonic_ns();
	Registry registry(arenas, **faults, policy, *sampler, placement, module.get(),
			  sampling_of(options), memory_bytes);
	const SessionOptions &sessions = options.policy.session;
	Control control(
		{**socket, arenas, **faults, policy, recorder, registry, objects, placement,
		 bandwidths, tenants, tiers->warm_limit_bytes != 0, options.cold.format,
		 uffd_device.get()},
		WakeGate(sessions.max_wakes, memory_bytes / 1000 * sessions.max_wake_permil));
	const StatusSources sources(options, *tiers, arenas, **faults, policy, mover, latency,
				    *sampler, control, objects, bandwidths, tenants, warnings,
				    registry.module_fd() >= 0 ? "module" : "native", start_ns);
	control.on_status([&] { return status_json(sources); },
			  [&] { return health_json(sources); });

	if (recovered)
		control.start_object_pool();
	const Reloadable reloadable{source, options, *tiers, policy, mover, latency, registry};
	control.on_tune([&](const nlohmann::json &settings) { return tune(reloadable, settings); });
	return run_threads(
		{**socket, **faults, policy, mover, latency, objects, registry, bandwidths},
		options, *tiers, [&](const std::atomic<bool> &failed) {
			return serve(**socket, control, registry, signals, failed, reloadable);
		});
}

int daemon_main(int argc, char **argv)
{
	ConfigSource source{kDefaultConfig};
	bool check = false, describe = false;
	CLI::App app{"cxl-kvd: keeps KV-cache blocks in the memory tier where they belong"};
	auto *config_option = app.add_option("-c,--config", source.file,
					     "configuration file (/etc/cxl-kv/cxl-kvd.toml)");
	app.add_flag("--check-config", check, "check the configuration and exit");
	app.add_flag("--describe-config", describe, "list every key and what it takes, and exit");
	app.set_version_flag("--version", CXL_KV_VERSION);
	app.failure_message([](const CLI::App *, const CLI::Error &e) {
		return fmt::format("cxl-kvd: {}\n`cxl-kvd --help` lists the options\n", e.what());
	});
	try {
		app.parse(argc, argv);
	} catch (const CLI::ParseError &e) {
		/* --help and --version end here too */
		return written("cxl-kvd", app.exit(e) ? 2 : 0);
	}

	if (describe) {
		fputs(describe_options().c_str(), stdout);
		return written("cxl-kvd", 0);
	}
	source.may_be_absent = config_option->count() == 0;
	auto options = load_options(source.file, source.may_be_absent);
	if (!options) {
		log_error("{}", options.error().what);
		return 2;
	}
	if (check) {
		/* Names what was read: a drop-in of another name than *.toml is not. */
		auto files = config_files(source.file, source.may_be_absent);
		if (!files || files->empty())
			printf("%s: no such file; ok, with the defaults\n", source.file.c_str());
		else
			printf("%s: ok\n", fmt::format("{}", fmt::join(*files, ", ")).c_str());
		return written("cxl-kvd", 0);
	}
	set_log_level(*options);
	if (auto result = run(*options, source); !result) {
		log_error("{}", result.error().what);
		/* What the configuration asks for can't be: starting again won't help. */
		return result.error().code == EINVAL ? 2 : 1;
	}
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	keep_standard_files();
	try {
		return daemon_main(argc, argv);
	} catch (const std::bad_alloc &) {
		log_error("out of memory");
	} catch (const std::exception &e) { /* a library's surprise */
		log_error("{}", e.what());
	}
	return 1;
}
