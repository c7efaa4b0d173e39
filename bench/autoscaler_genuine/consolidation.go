package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	"sigs.k8s.io/karpenter/pkg/test"
)

// A node that is initialized, with the pods that run on it.
type nodeInput struct {
	Name        string              `json:"name"`
	Labels      map[string]string   `json:"labels"`
	Capacity    corev1.ResourceList `json:"capacity"`
	Allocatable corev1.ResourceList `json:"allocatable"`
	Pods        []*corev1.Pod       `json:"pods"`
}

// The clock stands still, since a single-node pass gives up after three minutes.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

type silent struct{}

func (silent) Publish(...events.Event) {}

// accepted lets commands pass: the pass is timed without the wait before the validation.
type accepted struct{}

func (accepted) Validate(_ context.Context, c disruption.Command, _ time.Duration) (disruption.Command, error) {
	return c, nil
}

// cached answers reads from memory, as the caches of a manager do.
type cached struct {
	client.Client
	pods  map[string][]*corev1.Pod
	nodes map[string]*corev1.Node
	pool  *v1.NodePool
}

func (c *cached) List(ctx context.Context, list client.ObjectList, given ...client.ListOption) error {
	var opts client.ListOptions
	opts.ApplyOptions(given)
	switch found := list.(type) {
	case *corev1.PodList:
		found.Items = nil
		wanted := c.pods
		if opts.FieldSelector != nil {
			name, _ := opts.FieldSelector.RequiresExactMatch("spec.nodeName")
			wanted = map[string][]*corev1.Pod{name: c.pods[name]}
		}
		for _, pods := range wanted {
			for _, pod := range pods {
				if opts.LabelSelector == nil || opts.LabelSelector.Matches(labels.Set(pod.Labels)) {
					found.Items = append(found.Items, *pod.DeepCopy())
				}
			}
		}
	case *v1.NodePoolList:
		found.Items = []v1.NodePool{*c.pool.DeepCopy()}
	case *policyv1.PodDisruptionBudgetList:
		found.Items = nil
	case *appsv1.DaemonSetList:
		found.Items = nil
	default:
		return c.Client.List(ctx, list, given...)
	}
	return nil
}

func (c *cached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if node, ok := obj.(*corev1.Node); ok {
		if known, ok := c.nodes[key.Name]; ok {
			known.DeepCopyInto(node)
			return nil
		}
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

func running(pod *corev1.Pod, node string) *corev1.Pod {
	yes := true
	pod.Namespace, pod.UID = "default", types.UID(pod.Name)
	pod.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", UID: "owner", Controller: &yes}}
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodRunning
	for _, each := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: each, Status: corev1.ConditionTrue})
	}
	return pod
}

func claimOf(n nodeInput, class *v1.NodeClassReference) *v1.NodeClaim {
	claim := &v1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:   v1.NodeClaimSpec{NodeClassRef: class},
		Status: v1.NodeClaimStatus{ProviderID: "bench:///" + n.Name, NodeName: n.Name, Capacity: n.Capacity, Allocatable: n.Allocatable}}
	for _, each := range []string{v1.ConditionTypeLaunched, v1.ConditionTypeRegistered, v1.ConditionTypeInitialized, v1.ConditionTypeConsolidatable} {
		claim.StatusConditions().SetTrue(each)
	}
	return claim
}

func nodeOf(n nodeInput) *corev1.Node {
	marked := map[string]string{v1.NodeRegisteredLabelKey: "true", v1.NodeInitializedLabelKey: "true"}
	for key, value := range n.Labels {
		marked[key] = value
	}
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: marked, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:   corev1.NodeSpec{ProviderID: "bench:///" + n.Name},
		Status: corev1.NodeStatus{Capacity: n.Capacity, Allocatable: n.Allocatable, Conditions: ready}}
}

// consolidate makes one pass of a method over all nodes.
func consolidate(in input) map[string]any {
	// One worker: the faster setting, and the default of Karpenter.
	workers := int64(1000)
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "disruption"), test.Options(test.OptionsFields{CPURequests: &workers}))
	pool := test.NodePool(v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	pool.Spec.Disruption.ConsolidateAfter = v1.MustParseNillableDuration("0s")
	pool.Spec.Disruption.Budgets = []v1.Budget{{Nodes: "100%"}}
	provider := fake.NewCloudProvider()
	for _, t := range in.Types {
		provider.InstanceTypes = append(provider.InstanceTypes, t.genuine())
	}
	provider.InstanceTypesForNodePool = map[string][]*cloudprovider.InstanceType{pool.Name: provider.InstanceTypes}
	reads := &cached{Client: fakeclient.NewFakeClient(pool), pods: map[string][]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, pool: pool}
	clk := clocktesting.NewFakeClock(now)
	cluster := state.NewCluster(clk, reads, provider)
	prices := cost.NewClusterCost(ctx, provider, reads)
	prices.UpdateOfferings(ctx, pool, provider.InstanceTypes)
	for _, n := range in.Nodes {
		for _, pod := range n.Pods {
			reads.pods[n.Name] = append(reads.pods[n.Name], running(pod, n.Name))
		}
		claim, node := claimOf(n, pool.Spec.Template.Spec.NodeClassRef), nodeOf(n)
		reads.nodes[n.Name] = node
		cluster.UpdateNodeClaim(claim)
		check(cluster.UpdateNode(ctx, node))
		check(prices.UpdateNodeClaim(ctx, claim))
	}
	provisioner := provisioning.NewProvisioner(reads, silent{}, provider, cluster, clk, deviceallocation.NewController(reads), virtualpods.NewVirtualPodCache(reads))
	queue := disruption.NewQueue(reads, silent{}, cluster, clk, provisioner)
	base := disruption.MakeConsolidation(clk, cluster, reads, provisioner, provider, silent{}, queue)
	var method disruption.Method = disruption.NewMultiNodeConsolidation(base, disruption.WithValidator(accepted{}))
	if in.Method == "single" {
		method = disruption.NewSingleNodeConsolidation(base, disruption.WithValidator(accepted{}))
	}
	before, _ := usage()
	candidates, totals, err := disruption.GetCandidatesWithTotals(ctx, cluster, reads, silent{}, clk, provider, method.ShouldDisrupt, method.Class(), queue, prices)
	check(err)
	budgets := must(disruption.BuildDisruptionBudgetMapping(ctx, cluster, clk, reads, provider, silent{}, method.Reason()))
	if scored, ok := method.(disruption.NodePoolTotalsSetter); ok {
		scored.SetNodePoolTotals(totals)
	}
	commands := must(method.ComputeCommands(ctx, budgets, candidates...))
	after, rss := usage()
	return map[string]any{"cpu": after - before, "candidates": len(candidates), "command": decided(commands), "mebibytes": rss}
}

func decided(commands []disruption.Command) string {
	for _, each := range commands {
		if each.Decision() != disruption.NoOpDecision {
			return fmt.Sprintf("%s %d nodes, create %d", each.Decision(), len(each.SourceNodeNames()), len(each.Replacements))
		}
	}
	return "none"
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
