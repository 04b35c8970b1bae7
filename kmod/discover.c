// SPDX-License-Identifier: GPL-2.0
/*
 * Which nodes there are: ranges that are given; or those that are online
 * already (dax_cxl and kmem bring CXL RAM up on stock hosts) and the committed
 * CXL RAM regions that no driver holds, each a node of its own.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>

#include "internal.h"
#include "node.h"

#define MAX_PLACES 8

/* A parameter in bytes: 0x... or decimal, with K, M, G, T. */
static int param_set_bytes(const char *val, const struct kernel_param *kp)
{
	char *end;
	u64 bytes = memparse(val, &end);

	if (end == val || (*end && *end != '\n'))
		return -EINVAL;
	*(u64 *)kp->arg = bytes;
	return 0;
}

static int param_get_bytes(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%#llx\n", *(u64 *)kp->arg);
}

static const struct kernel_param_ops param_ops_bytes = {
	.set = param_set_bytes,
	.get = param_get_bytes,
};
#define param_check_bytes(name, p) __param_check(name, p, u64)

static u64 base[MAX_PLACES], size[MAX_PLACES];
static int node[MAX_PLACES], adistance[MAX_PLACES];
static uint read_latency[MAX_PLACES], write_latency[MAX_PLACES];
static uint read_bandwidth[MAX_PLACES], write_bandwidth[MAX_PLACES];
static int nr_base, nr_size, nr_node;
static bool regions = true;

module_param_array(base, bytes, &nr_base, 0444);
MODULE_PARM_DESC(base, "physical address of each range to hot-add, e.g. 0x140000000; none: adopt nodes that are online, take CXL regions");
module_param_array(size, bytes, &nr_size, 0444);
MODULE_PARM_DESC(size, "bytes of each range, K, M, G allowed");
module_param_array(node, int, &nr_node, 0444);
MODULE_PARM_DESC(node, "NUMA node of each range (default by firmware); without base=, the nodes to adopt (default all without CPUs)");
module_param_array(adistance, int, NULL, 0444);
MODULE_PARM_DESC(adistance, "abstract distance of each range; 128 to a memory tier, DRAM is 576 (default by HMAT or CDAT, else 2880)");
module_param_array(read_latency, uint, NULL, 0444);
MODULE_PARM_DESC(read_latency, "ns of each range or node (default by CDAT or HMAT)");
module_param_array(write_latency, uint, NULL, 0444);
MODULE_PARM_DESC(write_latency, "ns of each range or node (default by CDAT or HMAT)");
module_param_array(read_bandwidth, uint, NULL, 0444);
MODULE_PARM_DESC(read_bandwidth, "MB/s of each range or node (default by CDAT or HMAT)");
module_param_array(write_bandwidth, uint, NULL, 0444);
MODULE_PARM_DESC(write_bandwidth, "MB/s of each range or node (default by CDAT or HMAT)");
module_param(regions, bool, 0444);
MODULE_PARM_DESC(regions, "without base= and node=, take committed CXL RAM regions that no driver holds (default yes)");

static struct access_coordinate given_perf(int i)
{
	return (struct access_coordinate){
		.read_latency = read_latency[i],
		.write_latency = write_latency[i],
		.read_bandwidth = read_bandwidth[i],
		.write_bandwidth = write_bandwidth[i],
	};
}

static int check_place(const struct cxl_kv_place *place)
{
	u64 block = memory_block_size_bytes();
	int nid = place->nid;

	if (!place->size_bytes || !IS_ALIGNED(place->base, block) ||
	    !IS_ALIGNED(place->size_bytes, block) || place->base + place->size_bytes < place->base) {
		pr_err("base=%#llx size=%#llx: both must be multiples of the memory block size, %#llx\n",
		       place->base, place->size_bytes, block);
		return -EINVAL;
	}
	if (nid == NUMA_NO_NODE) {
		pr_err("base=%#llx: firmware names no node for it, give node=\n", place->base);
		return -EINVAL;
	}
	if (nid < 0 || nid >= nr_node_ids || !node_possible(nid)) {
		pr_err("node=%d: not among /sys/devices/system/node/possible\n", nid);
		return -EINVAL;
	}
	if (cxl_kv_node_is_known(nid)) {
		pr_err("node=%d: given twice; ranges of one node must be one range\n", nid);
		return -EINVAL;
	}
	if (node_state(nid, N_CPU)) {
		pr_err("node=%d: has CPUs, its memory tier could not be told from theirs\n", nid);
		return -EINVAL;
	}
	if (place->adistance < 0) {
		pr_err("adistance=%d: must be positive\n", place->adistance);
		return -EINVAL;
	}
	return 0;
}

/*
 * A range that is given may be a region, or part of one: then it must be one that
 * can be used. Hot-adding what no decoder answers for takes the machine down.
 */
static int match_region(const struct cxl_kv_region *region, void *arg)
{
	struct cxl_kv_place *place = arg;
	struct cxl_kv_holder holder;

	if (!region->size_bytes || region->base >= place->base + place->size_bytes ||
	    place->base >= region->base + region->size_bytes)
		return 0;
	if (!region->committed || !region->is_ram || region->base > place->base ||
	    region->base + region->size_bytes < place->base + place->size_bytes) {
		pr_err("base=%#llx: %s is not RAM, not committed, or does not hold all of it\n",
		       place->base, dev_name(region->dev));
		return -EINVAL;
	}
	if (cxl_kv_region_is_held(region, &holder)) {
		pr_err("%#llx-%#llx is held: by %s (driver %s)\n", place->base,
		       place->base + place->size_bytes - 1, holder.device, holder.driver);
		return -EEXIST;
	}
	place->region = get_device(region->dev);
	return 0;
}

static int add_given(int i)
{
	struct cxl_kv_place place = {
		.base = base[i],
		.size_bytes = size[i],
		/* Given, or what SRAT or CEDT say of the address. */
		.nid = nr_node ? node[i] : phys_to_target_node(base[i]),
		.adistance = adistance[i],
		.perf = given_perf(i),
	};
	int ret;

	ret = check_place(&place);
	if (!ret)
		ret = cxl_kv_regions_for_each(match_region, &place);
	if (!ret && node_state(place.nid, N_MEMORY))
		pr_warn("node %d has memory already and stays in the tier it is in\n", place.nid);
	if (!ret)
		ret = cxl_kv_node_add(&place);
	put_device(place.region);
	return ret;
}

static int add_all_given(void)
{
	int i, ret;

	if (nr_base != nr_size || (nr_node && nr_base != nr_node)) {
		pr_err("size=, and node= where given, need a value for each of base=\n");
		return -EINVAL;
	}
	for (i = 0; i < nr_base; i++) {
		ret = add_given(i);
		if (ret)
			return ret;
	}
	return 0;
}

static bool can_adopt(int nid)
{
	return nid >= 0 && nid < nr_node_ids && node_state(nid, N_MEMORY) &&
	       !node_state(nid, N_CPU) && !cxl_kv_node_is_known(nid);
}

static int adopt(int nid, struct access_coordinate perf)
{
	struct cxl_kv_place place = {
		.base = (u64)node_start_pfn(nid) << PAGE_SHIFT,
		.size_bytes = (u64)node_spanned_pages(nid) << PAGE_SHIFT,
		.nid = nid,
		.perf = perf,
	};

	return cxl_kv_node_adopt(&place);
}

static int adopt_given(void)
{
	int i, ret;

	for (i = 0; i < nr_node; i++) {
		if (!can_adopt(node[i])) {
			pr_err("node=%d: only a node with memory and without CPUs can be adopted, once\n",
			       node[i]);
			return -ENODEV;
		}
		ret = adopt(node[i], given_perf(i));
		if (ret)
			return ret;
	}
	return 0;
}

static int adopt_all(void)
{
	int nid, ret;

	for_each_node_state(nid, N_MEMORY) {
		ret = can_adopt(nid) ? adopt(nid, (struct access_coordinate){}) : 0;
		if (ret)
			return ret;
	}
	return 0;
}

struct found {
	struct cxl_kv_place places[MAX_PLACES];
	int nr;
};

static int find_free_region(const struct cxl_kv_region *region, void *arg)
{
	struct cxl_kv_holder holder;
	struct found *found = arg;

	if (!region->is_ram || !region->committed)
		return 0;
	if (cxl_kv_region_is_held(region, &holder)) {
		pr_info("%s is held: by %s (driver %s)\n", dev_name(region->dev), holder.device,
			holder.driver);
		return 0;
	}
	if (found->nr == MAX_PLACES) {
		pr_warn("%s: left alone, at most %d regions are taken\n", dev_name(region->dev),
			MAX_PLACES);
		return 0;
	}
	found->places[found->nr++] = (struct cxl_kv_place){
		.base = region->base,
		.size_bytes = region->size_bytes,
		.nid = phys_to_target_node(region->base),
		.region = get_device(region->dev),
	};
	return 0;
}

static bool is_free_node(int nid)
{
	return nid >= 0 && nid < nr_node_ids && node_possible(nid) && !node_state(nid, N_MEMORY) &&
	       !node_state(nid, N_CPU) && !cxl_kv_node_is_known(nid);
}

/*
 * Firmware names a node for a window of addresses, and there may be several
 * regions in one. The first gets that node, others one that nobody else has.
 */
static int choose_node(const struct found *found, int i)
{
	int nid, k;

	if (is_free_node(found->places[i].nid))
		return found->places[i].nid;
	for_each_node_state(nid, N_POSSIBLE) {
		for (k = i + 1; k < found->nr && found->places[k].nid != nid; k++)
			;
		if (k == found->nr && is_free_node(nid))
			return nid;
	}
	return NUMA_NO_NODE;
}

/* What cannot be taken is left alone: it was not asked for by name. */
static void take_regions(void)
{
	struct found found = {};
	int i;

	cxl_kv_regions_for_each(find_free_region, &found);
	for (i = 0; i < found.nr; i++) {
		struct cxl_kv_place *place = &found.places[i];

		place->nid = choose_node(&found, i);
		if (place->nid == NUMA_NO_NODE)
			pr_warn("%s: left alone, no NUMA node is left for it\n",
				dev_name(place->region));
		else if (check_place(place) || cxl_kv_node_add(place))
			pr_warn("%s: left alone\n", dev_name(place->region));
		put_device(place->region);
	}
}

static int find_nodes(void)
{
	int ret;

	if (nr_base)
		return add_all_given();
	if (nr_node)
		return adopt_given();
	ret = adopt_all();
	if (!ret && regions)
		take_regions();
	return ret;
}

/* Some of several ranges may be in use by now: then the module has to stay. */
static int give_back_all(int error)
{
	struct cxl_kv_node *n;

	list_for_each_entry(n, &cxl_kv_nodes, link) {
		if (n->origin == CXL_KV_NODE_ADDED && cxl_kv_node_remove(n)) {
			pr_err("staying: memory of node %d cannot be removed now\n", n->nid);
			return 0;
		}
	}
	cxl_kv_nodes_exit();
	return error;
}

static bool settled;

bool cxl_kv_nodes_settled(void)
{
	return smp_load_acquire(&settled);
}

int cxl_kv_nodes_init(void)
{
	int ret = find_nodes();

	if (ret)
		ret = give_back_all(ret);
	/* The list is as it stays now: who removes a node walks it without a lock. */
	smp_store_release(&settled, !ret);
	return ret;
}

void cxl_kv_nodes_exit(void)
{
	struct cxl_kv_node *n, *next;

	list_for_each_entry_safe(n, next, &cxl_kv_nodes, link) {
		list_del(&n->link);
		device_unregister(&n->dev);
	}
}
