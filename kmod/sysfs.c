// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/cxl_kv: the module's version and a directory for each node. Arenas:
 * sysfs_arena.c. One value a file; bytes, decimal unless it is an address.
 */
#include <linux/device.h>
#include <linux/memory-tiers.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/sysfs.h>

#include "internal.h"
#include "node.h"
#include "sysfs.h"

static ssize_t version_show(const struct class *class, const struct class_attribute *attr,
			    char *buf)
{
	return sysfs_emit(buf, "%s\n", CXL_KV_VERSION);
}
static CLASS_ATTR_RO(version);

static struct attribute *class_attrs[] = {
	&class_attr_version.attr,
	NULL,
};
ATTRIBUTE_GROUPS(class);

const struct class cxl_kv_class = {
	.name = "cxl_kv",
	.class_groups = class_groups,
};

CXL_KV_SHOW(base, struct cxl_kv_node, "%#llx", it->base);
CXL_KV_SHOW(size_bytes, struct cxl_kv_node, "%llu", it->size_bytes);
CXL_KV_SHOW(adistance_source, struct cxl_kv_node, "%s", it->adistance_source);
CXL_KV_SHOW(origin, struct cxl_kv_node, "%s",
	    it->origin == CXL_KV_NODE_ADDED ? "added" : "adopted");

CXL_KV_SHOW(performance_source, struct cxl_kv_node, "%s", it->perf_source);
CXL_KV_SHOW(region, struct cxl_kv_node, "%s", it->region ? dev_name(it->region) : "none");

#define PERF_SHOW(_name, _field)                                                                   \
	static ssize_t _name##_show(struct device *dev, struct device_attribute *attr, char *buf)  \
	{                                                                                          \
		const struct cxl_kv_node *node = container_of(dev, struct cxl_kv_node, dev);       \
												   \
		if (!node->perf._field)                                                            \
			return sysfs_emit(buf, "unknown\n");                                       \
		return sysfs_emit(buf, "%u\n", node->perf._field);                                 \
	}                                                                                          \
	static DEVICE_ATTR_RO(_name)

PERF_SHOW(read_latency_ns, read_latency);
PERF_SHOW(write_latency_ns, write_latency);
PERF_SHOW(read_bandwidth_MBps, read_bandwidth);
PERF_SHOW(write_bandwidth_MBps, write_bandwidth);

static ssize_t adistance_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct cxl_kv_node *node = container_of(dev, struct cxl_kv_node, dev);

	if (!node->adistance)
		return sysfs_emit(buf, "unknown\n");
	return sysfs_emit(buf, "%d\n", node->adistance);
}
static DEVICE_ATTR_RO(adistance);

/* The N of /sys/devices/virtual/memory_tiering/memory_tierN. */
static ssize_t tier_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct cxl_kv_node *node = container_of(dev, struct cxl_kv_node, dev);

	if (!node->adistance)
		return sysfs_emit(buf, "unknown\n");
	return sysfs_emit(buf, "%d\n", node->adistance >> MEMTIER_CHUNK_BITS);
}
static DEVICE_ATTR_RO(tier);

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct cxl_kv_node *node = container_of(dev, struct cxl_kv_node, dev);

	if (!READ_ONCE(node->present))
		return sysfs_emit(buf, "removed\n");
	return sysfs_emit(buf, "%s\n", node_state(node->nid, N_MEMORY) ? "online" : "offline");
}
static DEVICE_ATTR_RO(state);

static ssize_t remove_store(struct device *dev, struct device_attribute *attr, const char *buf,
			    size_t count)
{
	bool yes;
	int ret;

	ret = kstrtobool(buf, &yes);
	if (ret || !yes)
		return ret ?: -EINVAL;
	if (!cxl_kv_nodes_settled())
		return -EBUSY;
	ret = cxl_kv_node_remove(container_of(dev, struct cxl_kv_node, dev));
	return ret ?: count;
}
static DEVICE_ATTR_WO(remove);

static struct attribute *node_attrs[] = {
	&dev_attr_base.attr,
	&dev_attr_size_bytes.attr,
	&dev_attr_tier.attr,
	&dev_attr_adistance.attr,
	&dev_attr_adistance_source.attr,
	&dev_attr_read_latency_ns.attr,
	&dev_attr_write_latency_ns.attr,
	&dev_attr_read_bandwidth_MBps.attr,
	&dev_attr_write_bandwidth_MBps.attr,
	&dev_attr_performance_source.attr,
	&dev_attr_region.attr,
	&dev_attr_origin.attr,
	&dev_attr_state.attr,
	&dev_attr_remove.attr,
	NULL,
};
ATTRIBUTE_GROUPS(node);

static void node_release(struct device *dev)
{
	cxl_kv_node_free(container_of(dev, struct cxl_kv_node, dev));
}

static const struct device_type node_type = {
	.name = "cxl_kv_node",
	.groups = node_groups,
	.release = node_release,
};

int cxl_kv_sysfs_add_node(struct cxl_kv_node *node)
{
	int ret;

	device_initialize(&node->dev);
	node->dev.class = &cxl_kv_class;
	node->dev.type = &node_type;
	ret = dev_set_name(&node->dev, "node%d", node->nid);
	if (!ret)
		ret = device_add(&node->dev);
	if (ret)
		put_device(&node->dev);
	return ret;
}

int cxl_kv_sysfs_init(void)
{
	return class_register(&cxl_kv_class);
}

void cxl_kv_sysfs_exit(void)
{
	class_unregister(&cxl_kv_class);
}
