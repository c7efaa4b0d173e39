// Command genuine runs the scheduler or the consolidation of Karpenter's Go module over the input that
// bench/autoscaler.py writes, and prints processor time, memory and what was decided as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	solver "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/test"
)

type instanceType struct {
	Name         string              `json:"name"`
	Capacity     corev1.ResourceList `json:"capacity"`
	Overhead     corev1.ResourceList `json:"overhead"`
	Requirements []struct {
		Key      string                      `json:"key"`
		Operator corev1.NodeSelectorOperator `json:"operator"`
		Values   []string                    `json:"values"`
	} `json:"requirements"`
	Offerings []struct {
		Zone         string  `json:"zone"`
		CapacityType string  `json:"capacityType"`
		Price        float64 `json:"price"`
	} `json:"offerings"`
}

type input struct {
	Types  []instanceType `json:"types"`
	Pods   []*corev1.Pod  `json:"pods"`
	Nodes  []nodeInput    `json:"nodes"`
	Method string         `json:"method"`
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (t instanceType) genuine() *cloudprovider.InstanceType {
	out := &cloudprovider.InstanceType{Name: t.Name, Requirements: scheduling.NewRequirements(), Capacity: t.Capacity,
		Overhead: &cloudprovider.InstanceTypeOverhead{KubeReserved: t.Overhead}}
	for _, r := range t.Requirements {
		out.Requirements.Add(scheduling.NewRequirement(r.Key, r.Operator, r.Values...))
	}
	for _, o := range t.Offerings {
		labels := map[string]string{v1.CapacityTypeLabelKey: o.CapacityType, corev1.LabelTopologyZone: o.Zone}
		out.Offerings = append(out.Offerings, &cloudprovider.Offering{Requirements: scheduling.NewLabelRequirements(labels), Price: o.Price, Available: true})
	}
	return out
}

func usage() (cpu float64, rss int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6, u.Maxrss / 1024
}

func price(claims []*solver.NodeClaim) (total float64) {
	for _, claim := range claims {
		best := math.Inf(1)
		for _, it := range claim.InstanceTypeOptions {
			for _, o := range it.Offerings.Available().Compatible(claim.Requirements) {
				best = min(best, o.Price)
			}
		}
		total += best
	}
	return total
}

func main() {
	log.SetLogger(logging.NopLogger)
	var in input
	if err := json.Unmarshal(must(os.ReadFile(os.Args[1])), &in); err != nil {
		panic(err)
	}
	found := solve
	if len(in.Nodes) > 0 {
		found = consolidate
	}
	fmt.Println(string(must(json.Marshal(found(in)))))
}

// solve packs pending pods.
func solve(in input) map[string]any {
	ctx := options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), test.Options())
	pool := test.NodePool(v1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1.NodePoolSpec{Limits: v1.Limits{
		corev1.ResourceCPU: resource.MustParse("10000000"), corev1.ResourceMemory: resource.MustParse("10000000Gi")}}})
	var types []*cloudprovider.InstanceType
	for _, t := range in.Types {
		types = append(types, t.genuine())
	}
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = types
	client := fakeclient.NewFakeClient()
	clk := &clock.RealClock{}
	cluster := state.NewCluster(clk, client, provider)
	byPool := map[string][]*cloudprovider.InstanceType{pool.Name: types}
	one := solver.NumConcurrentReconciles(1)
	topology := must(solver.NewTopology(ctx, client, cluster, nil, []*v1.NodePool{pool}, byPool, in.Pods, one))
	s := solver.NewScheduler(ctx, client, []*v1.NodePool{pool}, cluster, nil, topology, byPool, nil, events.NewRecorder(&record.FakeRecorder{}), clk, nil, nil, one)
	runtime.GC()
	before, _ := usage()
	found := must(s.Solve(ctx, in.Pods))
	after, rss := usage()
	return map[string]any{"cpu": after - before, "nodes": len(found.NewNodeClaims),
		"unscheduled": len(found.PodErrors), "price": price(found.NewNodeClaims), "mebibytes": rss}
}
