// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes: memory of an endpoint as a NUMA node without CPUs. Such a node is
 * adopted where it is online already (dax_cxl and kmem bring CXL RAM up on
 * stock hosts), or hot-added from an explicit range, in a memory tier that
 * follows from its abstract distance.
 *
 * While memory that we added is there, the module holds a reference on itself:
 * the kernel's resource tree and the memory tiers point into what we own.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ioport.h>
#include <linux/memory-tiers.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>
#include <linux/slab.h>

#include "internal.h"

#define MAX_RANGES 8
#define RES_NAME "System RAM (" KBUILD_MODNAME ")"
/* As dax/kmem: much slower than DRAM where nobody knows how slow. */
#define DEFAULT_ADISTANCE (MEMTIER_ADISTANCE_DRAM * 5)

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

static u64 base[MAX_RANGES];
static u64 size[MAX_RANGES];
static int node[MAX_RANGES];
static int adistance[MAX_RANGES];
static int nr_base, nr_size, nr_node, nr_adistance;

module_param_array(base, bytes, &nr_base, 0444);
MODULE_PARM_DESC(base, "physical address of each range to hot-add, e.g. 0x140000000; none: adopt nodes that are online");
module_param_array(size, bytes, &nr_size, 0444);
MODULE_PARM_DESC(size, "bytes of each range, K, M, G allowed");
module_param_array(node, int, &nr_node, 0444);
MODULE_PARM_DESC(node, "NUMA node of each range (default by firmware); without base=, the nodes to adopt (default all without CPUs)");
module_param_array(adistance, int, &nr_adistance, 0444);
MODULE_PARM_DESC(adistance, "abstract distance of each range; 128 to a memory tier, DRAM is 576 (default by HMAT or CDAT, else 2880)");

static LIST_HEAD(nodes); /* changed by the module's init and exit only */

void cxl_kv_node_free(struct cxl_kv_node *n)
{
	mutex_destroy(&n->lock);
	kfree(n);
}

static struct cxl_kv_node *new_node(enum cxl_kv_node_origin origin, int nid, u64 start, u64 bytes)
{
	struct cxl_kv_node *n = kzalloc(sizeof(*n), GFP_KERNEL);

	if (!n)
		return NULL;
	mutex_init(&n->lock);
	n->origin = origin;
	n->nid = nid;
	n->base = start;
	n->size_bytes = bytes;
	return n;
}

/* @given > 0 wins over what firmware says. */
static void set_adistance(struct cxl_kv_node *n, int given)
{
	n->adistance = n->origin == CXL_KV_NODE_ADDED ? DEFAULT_ADISTANCE : 0;
	n->adistance_source = n->origin == CXL_KV_NODE_ADDED ? "default" : "unknown";
	if (given) {
		n->adistance = given;
		n->adistance_source = "given";
	} else if (mt_calc_adistance(n->nid, &n->adistance) & NOTIFY_STOP_MASK) {
		n->adistance_source = "hmat";
	}
}

/*
 * Says who has a range that we were refused. The tree's lock is not exported:
 * a name may be torn while another driver changes the tree at this moment, so
 * this is for the log only.
 */
static void log_holder(u64 start, u64 end)
{
	const struct resource *res = iomem_resource.child, *holder = NULL;

	while (res) {
		if (res->end < start || res->start > end) {
			res = res->sibling;
			continue;
		}
		if (res->flags & IORESOURCE_BUSY || !holder)
			holder = res;
		res = res->child;
	}
	if (holder)
		pr_err("%#llx-%#llx is held: \"%s\" has %pR\n", start, end, holder->name, holder);
	else
		pr_err("%#llx-%#llx is held, see /proc/iomem\n", start, end);
}

static bool is_listed(int nid)
{
	const struct cxl_kv_node *n;

	list_for_each_entry(n, &nodes, link)
		if (n->nid == nid)
			return true;
	return false;
}

/* The node of range @i: given, or what SRAT or CEDT say of its address. */
static int node_of(int i)
{
	return i < nr_node ? node[i] : phys_to_target_node(base[i]);
}

static int check_range(u64 start, u64 bytes, int nid, int given_adistance)
{
	u64 block = memory_block_size_bytes();

	if (!bytes || !IS_ALIGNED(start, block) || !IS_ALIGNED(bytes, block) ||
	    start + bytes < start) {
		pr_err("base=%#llx size=%#llx: both must be multiples of the memory block size, %#llx\n",
		       start, bytes, block);
		return -EINVAL;
	}
	if (nid == NUMA_NO_NODE) {
		pr_err("base=%#llx: firmware names no node for it, give node=\n", start);
		return -EINVAL;
	}
	if (nid < 0 || nid >= nr_node_ids || !node_possible(nid)) {
		pr_err("node=%d: not among /sys/devices/system/node/possible\n", nid);
		return -EINVAL;
	}
	if (is_listed(nid)) {
		pr_err("node=%d: given twice; ranges of one node must be one range\n", nid);
		return -EINVAL;
	}
	if (node_state(nid, N_CPU)) {
		pr_err("node=%d: has CPUs, its memory tier could not be told from theirs\n",
		       nid);
		return -EINVAL;
	}
	if (given_adistance < 0) {
		pr_err("adistance=%d: must be positive\n", given_adistance);
		return -EINVAL;
	}
	return 0;
}

static int add_memory_of(struct cxl_kv_node *n)
{
	int ret;

	n->mtype = alloc_memory_type(n->adistance);
	if (IS_ERR(n->mtype))
		return PTR_ERR(n->mtype);
	init_node_memory_type(n->nid, n->mtype);

	ret = memory_group_register_static(n->nid, PFN_UP(n->size_bytes));
	if (ret < 0)
		goto err_type;
	n->mgid = ret;

	ret = -ENOMEM;
	n->res_name = kstrdup(RES_NAME, GFP_KERNEL);
	if (!n->res_name)
		goto err_group;

	__module_get(THIS_MODULE);
	ret = add_memory_driver_managed(n->mgid, n->base, n->size_bytes, n->res_name,
					MHP_NID_IS_MGID);
	if (ret)
		goto err_name;
	n->present = true;
	return 0;

err_name:
	module_put(THIS_MODULE);
	kfree(n->res_name);
err_group:
	memory_group_unregister(n->mgid);
err_type:
	clear_node_memory_type(n->nid, n->mtype);
	put_memory_type(n->mtype);
	return ret;
}

static int hot_add(int i)
{
	int given = i < nr_adistance ? adistance[i] : 0;
	int nid = node_of(i);
	struct cxl_kv_node *n;
	int ret;

	ret = check_range(base[i], size[i], nid, given);
	if (ret)
		return ret;
	if (node_state(nid, N_MEMORY))
		pr_warn("node %d has memory already and stays in the tier it is in\n", nid);

	n = new_node(CXL_KV_NODE_ADDED, nid, base[i], size[i]);
	if (!n)
		return -ENOMEM;
	set_adistance(n, given);
	/* Shown first: once its memory is there, there must be a way to remove it. */
	ret = cxl_kv_sysfs_add_node(n);
	if (ret)
		return ret;
	mutex_lock(&n->lock);
	ret = add_memory_of(n);
	mutex_unlock(&n->lock);
	if (ret) {
		if (ret == -EEXIST)
			log_holder(n->base, n->base + n->size_bytes - 1);
		else
			pr_err("adding %#llx bytes at %#llx to node %d failed: %d\n",
			       n->size_bytes, n->base, n->nid, ret);
		device_unregister(&n->dev);
		return ret;
	}
	list_add_tail(&n->link, &nodes);
	pr_info("node %d: added %#llx bytes at %#llx, abstract distance %d (%s)\n", n->nid,
		n->size_bytes, n->base, n->adistance, n->adistance_source);
	return 0;
}

static int adopt(int nid)
{
	struct cxl_kv_node *n;
	int ret;

	n = new_node(CXL_KV_NODE_ADOPTED, nid, (u64)node_start_pfn(nid) << PAGE_SHIFT,
		     (u64)node_spanned_pages(nid) << PAGE_SHIFT);
	if (!n)
		return -ENOMEM;
	n->present = true;
	set_adistance(n, 0);
	ret = cxl_kv_sysfs_add_node(n);
	if (ret)
		return ret;
	list_add_tail(&n->link, &nodes);
	pr_info("node %d: adopted\n", nid);
	return 0;
}

static bool can_adopt(int nid)
{
	return nid >= 0 && nid < nr_node_ids && node_state(nid, N_MEMORY) &&
	       !node_state(nid, N_CPU);
}

static int adopt_all(void)
{
	int nid, i, ret;

	for (i = 0; i < nr_node; i++) {
		if (!can_adopt(node[i]) || is_listed(node[i])) {
			pr_err("node=%d: only a node with memory and without CPUs can be adopted, once\n",
			       node[i]);
			return -ENODEV;
		}
		ret = adopt(node[i]);
		if (ret)
			return ret;
	}
	if (nr_node)
		return 0;
	for_each_node_state(nid, N_MEMORY) {
		ret = can_adopt(nid) ? adopt(nid) : 0;
		if (ret)
			return ret;
	}
	return 0;
}

static int add_all(void)
{
	int i, ret;

	if (nr_base != nr_size || (nr_node && nr_base != nr_node)) {
		pr_err("size=, and node= where given, need a value for each of base=\n");
		return -EINVAL;
	}
	for (i = 0; i < nr_base; i++) {
		ret = hot_add(i);
		if (ret)
			return ret;
	}
	return 0;
}

int cxl_kv_node_remove(struct cxl_kv_node *n)
{
	int ret;

	if (n->origin != CXL_KV_NODE_ADDED)
		return -EOPNOTSUPP;
	if (mutex_lock_interruptible(&n->lock))
		return -EINTR;
	ret = n->present ? offline_and_remove_memory(n->base, n->size_bytes) : -ENODEV;
	if (ret) {
		mutex_unlock(&n->lock);
		return ret;
	}
	n->present = false;
	kfree(n->res_name);
	memory_group_unregister(n->mgid);
	clear_node_memory_type(n->nid, n->mtype);
	put_memory_type(n->mtype);
	mutex_unlock(&n->lock);
	pr_info("node %d: removed %#llx bytes at %#llx\n", n->nid, n->size_bytes, n->base);
	/* The caller is in a sysfs write, which the module's exit waits for. */
	module_put(THIS_MODULE);
	return 0;
}

int cxl_kv_nodes_init(void)
{
	struct cxl_kv_node *n;
	int ret;

	ret = nr_base ? add_all() : adopt_all();
	if (!ret)
		return 0;

	/* Some of several ranges may be in use by now: then the module has to stay. */
	list_for_each_entry(n, &nodes, link) {
		if (n->origin == CXL_KV_NODE_ADDED && cxl_kv_node_remove(n)) {
			pr_err("staying: memory of node %d cannot be removed now\n", n->nid);
			return 0;
		}
	}
	cxl_kv_nodes_exit();
	return ret;
}

void cxl_kv_nodes_exit(void)
{
	struct cxl_kv_node *n, *next;

	list_for_each_entry_safe(n, next, &nodes, link) {
		list_del(&n->link);
		device_unregister(&n->dev);
	}
}
