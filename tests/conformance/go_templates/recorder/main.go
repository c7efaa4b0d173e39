// Records what the template functions of karpenter-provider-proxmox print for cases on stdin.
package main

import (
	"encoding/json"
	"os"

	"github.com/sergelogvinov/karpenter-provider-proxmox/pkg/providers/instance/cloudinit"
)

type Case struct {
	Name     string
	Template string
	Data     any
	Root     string
}

type Answer struct {
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

type Resources struct {
	CPU          int64 `yaml:"cpu,omitempty"`
	Memory       int64 `yaml:"memory,omitempty"`
	Hugepages1Gi int   `yaml:"hugepages1Gi,omitempty"`
	Hugepages2Mi int   `yaml:"hugepages2Mi,omitempty"`
}

type Taint struct {
	Key    string `yaml:"key,omitempty"`
	Value  string `yaml:"value,omitempty"`
	Effect string `yaml:"effect,omitempty"`
}

type Kubelet struct {
	CPUManagerPolicy   string            `yaml:"cpuManagerPolicy,omitempty"`
	ClusterDNS         []string          `yaml:"clusterDNS,omitempty"`
	MaxPods            *int32            `yaml:"maxPods,omitempty"`
	ProviderID         string            `yaml:"providerID,omitempty"`
	FailSwapOn         *bool             `yaml:"failSwapOn,omitempty"`
	KubeReserved       map[string]string `yaml:"kubeReserved,omitempty"`
	RegisterWithTaints []Taint           `yaml:"registerWithTaints,omitempty"`
}

type Kubernetes struct {
	Version              string
	RootCA               string
	BootstrapToken       string
	KubeletConfiguration *Kubelet
}

type UserData struct {
	Metadata   cloudinit.MetaData
	Network    cloudinit.NetworkConfig
	Resources  Resources
	Kubernetes Kubernetes
	Values     map[string]string
}

func data(root string) any {
	pods, swap := int32(110), false
	user := UserData{
		Metadata: cloudinit.MetaData{
			Hostname: "node-1", InstanceID: "1001", InstanceUUID: "0f1e", InstanceType: "s1.2VCPU-8GB",
			ProviderID: "proxmox://r1/1001", Region: "r1", Zone: "pve1",
			Tags: []string{"karpenter", "team=a;tier=web"}, NodeClass: "default",
		},
		Network: cloudinit.NetworkConfig{
			Interfaces: []cloudinit.InterfaceConfig{
				{Name: "eth0", MacAddr: "BC:24:11:00:00:01", Address4: []string{"10.0.0.5/24"}, Gateway4: "10.0.0.1", MTU: 1500, NodeAddress6: "2001:db8:1::10/64", SLAAC: true},
				{Name: "eth1", MacAddr: "BC:24:11:00:00:02", DHCPv4: true, DHCPv6: true},
				{Name: "eth2", MacAddr: "BC:24:11:00:00:03", Address6: []string{"fd00::5/64"}, Gateway6: "fd00::1", MTU: 9000},
			},
			SearchDomains: []string{"example.org"}, NameServers: []string{"1.1.1.1", "2606:4700::1111"},
		},
		Resources: Resources{CPU: 2, Memory: 8589934592, Hugepages2Mi: 512},
		Kubernetes: Kubernetes{Version: "v1.36.3", RootCA: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
			BootstrapToken: "abcdef.0123456789abcdef",
			KubeletConfiguration: &Kubelet{CPUManagerPolicy: "static", ClusterDNS: []string{"10.96.0.10"}, MaxPods: &pods, ProviderID: "proxmox://r1/1001",
				FailSwapOn: &swap, KubeReserved: map[string]string{"memory": "384Mi", "cpu": "50m"},
				RegisterWithTaints: []Taint{{Key: "karpenter.sh/unregistered", Effect: "NoExecute"}}}},
		Values: map[string]string{"SSHAuthorizedKeys": "ssh-ed25519 AAAA a,ssh-rsa BBBB b", "empty": "", "number": "42", "yes": "yes", "text": "two\nlines"},
	}
	switch root {
	case "metadata":
		return user.Metadata
	case "network":
		return user.Network
	}
	return user
}

func main() {
	var cases []Case
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	answers := map[string]Answer{}
	for _, each := range cases {
		value := each.Data
		if value == nil {
			value = data(each.Root)
		}
		answers[each.Name] = answer(each.Template, value)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(answers); err != nil {
		panic(err)
	}
}

func answer(template string, value any) (found Answer) {
	defer func() {
		if recovered := recover(); recovered != nil {
			found = Answer{Error: "panic"}
		}
	}()
	output, err := cloudinit.ExecuteTemplate(template, value)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	return Answer{Output: output}
}
