// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes: memory of an endpoint as a NUMA node without CPUs, hot-added by us or
 * adopted as it is, in a memory tier that follows from its abstract distance.
 * Which there are: discover.c.
 *
 * While memory that we added is there, the module holds a reference on itself:
 * the kernel's resource tree and the memory tiers point into what we own. And
 * the CXL region that it is lets nobody change it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ioport.h>
#include <linux/memory-tiers.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "internal.h"
#include "node.h"
#include "trace.h"

#define RES_NAME "System RAM (" KBUILD_MODNAME ")"
/* As dax/kmem: much slower than DRAM where nobody knows how slow. */
#define DEFAULT_ADISTANCE (MEMTIER_ADISTANCE_DRAM * 5)

static uint remove_timeout_ms = 30000;
module_param(remove_timeout_ms, uint, 0644);
MODULE_PARM_DESC(remove_timeout_ms, "how long the removal of a node tries to move pages away before it answers EBUSY; 0: for ever (default 30000)");

LIST_HEAD(cxl_kv_nodes);

bool cxl_kv_node_is_known(int nid)
{
	const struct cxl_kv_node *n;

	list_for_each_entry(n, &cxl_kv_nodes, link)
		if (n->nid == nid)
			return true;
	return false;
}

void cxl_kv_node_free(struct cxl_kv_node *n)
{
	put_device(n->region);
	mutex_destroy(&n->lock);
	kfree(n);
}

static bool is_given(const struct access_coordinate *perf)
{
	return perf->read_latency || perf->write_latency || perf->read_bandwidth ||
	       perf->write_bandwidth;
}

static void set_perf(struct cxl_kv_node *n, const struct cxl_kv_place *place)
{
	n->perf = place->perf;
	if (is_given(&n->perf))
		n->perf_source = "given";
	else if (n->region && cxl_kv_region_perf(n->region, &n->perf))
		n->perf_source = "cdat";
	else if (cxl_kv_hmat_perf(n->nid, &n->perf))
		n->perf_source = "hmat";
	else
		n->perf_source = "unknown";
}

/* What is given wins over what firmware says. */
static void set_adistance(struct cxl_kv_node *n, int given)
{
	n->adistance = n->origin == CXL_KV_NODE_ADDED ? DEFAULT_ADISTANCE : 0;
	n->adistance_source = n->origin == CXL_KV_NODE_ADDED ? "default" : "unknown";
	if (given) {
		n->adistance = given;
		n->adistance_source = "given";
	} else if (mt_calc_adistance(n->nid, &n->adistance) & NOTIFY_STOP_MASK) {
		n->adistance_source = "hmat";
	} else if (n->origin == CXL_KV_NODE_ADDED && is_given(&n->perf) &&
		   !mt_perf_to_adistance(&n->perf, &n->adistance)) {
		n->adistance_source = n->perf_source;
	}
}

static struct cxl_kv_node *new_node(enum cxl_kv_node_origin origin,
				    const struct cxl_kv_place *place)
{
	struct cxl_kv_node *n = kzalloc(sizeof(*n), GFP_KERNEL);

	if (!n)
		return NULL;
	mutex_init(&n->lock);
	n->origin = origin;
	n->nid = place->nid;
	n->base = place->base;
	n->size_bytes = place->size_bytes;
	if (place->region)
		n->region = get_device(place->region);
	set_perf(n, place);
	set_adistance(n, place->adistance);
	return n;
}

/* The root decoder's verb stays away until the last of its regions is let go. */
static void freeze_region(struct cxl_kv_node *n, bool frozen)
{
	const struct cxl_kv_node *other;
	bool shared = false;

	if (!n->region)
		return;
	cxl_kv_region_freeze(n->region, frozen);
	list_for_each_entry(other, &cxl_kv_nodes, link)
		shared |= other != n && other->present && other->region &&
			  other->region->parent == n->region->parent;
	if (!shared)
		cxl_kv_region_freeze_parent(n->region, frozen);
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

/* Says who has a range that we were refused. */
static void log_holder(u64 start, u64 end)
{
	struct cxl_kv_holder holder;

	if (cxl_kv_find_holder(start, end, &holder))
		pr_err("%#llx-%#llx is held: by %s (driver %s)\n", start, end, holder.device,
		       holder.driver);
	else if (region_intersects(start, end - start + 1, IORESOURCE_SYSTEM_RAM,
				   IORES_DESC_NONE) != REGION_DISJOINT)
		pr_err("%#llx-%#llx is held: it is System RAM already\n", start, end);
	else
		pr_err("%#llx-%#llx is held, see /proc/iomem\n", start, end);
}

int cxl_kv_node_add(const struct cxl_kv_place *place)
{
	struct cxl_kv_node *n = new_node(CXL_KV_NODE_ADDED, place);
	int ret;

	if (!n)
		return -ENOMEM;
	/* Shown first: once its memory is there, there must be a way to remove it. */
	ret = cxl_kv_sysfs_add_node(n);
	if (ret)
		return ret;
	mutex_lock(&n->lock);
	freeze_region(n, true);
	/* It may have been taken apart before that. */
	ret = !n->region || cxl_kv_region_is_committed(n->region) ? add_memory_of(n) : -ENXIO;
	if (ret)
		freeze_region(n, false);
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
	list_add_tail(&n->link, &cxl_kv_nodes);
	trace_cxl_kv_node_state(n->nid, n->base, n->size_bytes, CXL_KV_NODE_STATE_ADDED);
	pr_info("node %d: added %#llx bytes at %#llx%s%s, abstract distance %d (%s)\n", n->nid,
		n->size_bytes, n->base, n->region ? ", " : "",
		n->region ? dev_name(n->region) : "", n->adistance, n->adistance_source);
	return 0;
}

int cxl_kv_node_adopt(const struct cxl_kv_place *place)
{
	struct cxl_kv_node *n = new_node(CXL_KV_NODE_ADOPTED, place);
	int ret;

	if (!n)
		return -ENOMEM;
	n->present = true;
	ret = cxl_kv_sysfs_add_node(n);
	if (ret)
		return ret;
	list_add_tail(&n->link, &cxl_kv_nodes);
	trace_cxl_kv_node_state(n->nid, n->base, n->size_bytes, CXL_KV_NODE_STATE_ADOPTED);
	pr_info("node %d: adopted\n", n->nid);
	return 0;
}

/*
 * Offlining tries to move a pinned page for as long as no signal comes, so a
 * deadline has to look like one. The flag is not a signal that a process could
 * see; it goes away on the way back to user space.
 */
struct deadline {
	struct delayed_work work;
	struct task_struct *task;
	bool passed;
};

static void deadline_work(struct work_struct *work)
{
	struct deadline *deadline = container_of(to_delayed_work(work), struct deadline, work);

	WRITE_ONCE(deadline->passed, true);
	set_tsk_thread_flag(deadline->task, TIF_NOTIFY_SIGNAL);
}

static int remove_memory_of(struct cxl_kv_node *n)
{
	struct deadline deadline = { .task = current };
	uint timeout_ms = READ_ONCE(remove_timeout_ms);
	int ret;

	INIT_DELAYED_WORK_ONSTACK(&deadline.work, deadline_work);
	if (timeout_ms)
		schedule_delayed_work(&deadline.work, msecs_to_jiffies(timeout_ms));
	ret = offline_and_remove_memory(n->base, n->size_bytes);
	cancel_delayed_work_sync(&deadline.work);
	destroy_delayed_work_on_stack(&deadline.work);
	return ret == -EINTR && deadline.passed ? -EBUSY : ret;
}

int cxl_kv_node_remove(struct cxl_kv_node *n)
{
	int ret;

	if (n->origin != CXL_KV_NODE_ADDED)
		return -EOPNOTSUPP;
	if (mutex_lock_interruptible(&n->lock))
		return -EINTR;
	ret = n->present ? remove_memory_of(n) : -ENODEV;
	if (ret) {
		mutex_unlock(&n->lock);
		return ret;
	}
	n->present = false;
	freeze_region(n, false);
	kfree(n->res_name);
	memory_group_unregister(n->mgid);
	clear_node_memory_type(n->nid, n->mtype);
	put_memory_type(n->mtype);
	mutex_unlock(&n->lock);
	trace_cxl_kv_node_state(n->nid, n->base, n->size_bytes, CXL_KV_NODE_STATE_REMOVED);
	pr_info("node %d: removed %#llx bytes at %#llx\n", n->nid, n->size_bytes, n->base);
	/* The caller is in a sysfs write, which the module's exit waits for. */
	module_put(THIS_MODULE);
	return 0;
}
