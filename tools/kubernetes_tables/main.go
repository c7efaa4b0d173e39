// Command kubernetes_tables prints how Go encodes the built-in Kubernetes kinds: for every struct the
// JSON name, protobuf number, type and omission rule of each field, as one JSON object.
// Run by tables.py; reads nothing, writes standard output.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types whose JSON form differs from their struct; the Python reader decodes them by these names.
var special = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                           "Time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                      "MicroTime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                       "Duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                       "Raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                       "Quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                     "IntOrString",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                        "Raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                       "Raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "OrArray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "OrBool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "OrStrings",
	"k8s.io/api/authorization/v1.ExtraValue":                                              "Strings",
	"k8s.io/api/authentication/v1.ExtraValue":                                             "Strings",
}

var structs = map[string][]any{}

func named(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

func word(t reflect.Type) string {
	if s, ok := special[named(t)]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + word(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64, reflect.Int, reflect.Uint16, reflect.Uint32, reflect.Uint8:
		return t.Kind().String()
	case reflect.Float64, reflect.Float32:
		return "float"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + word(t.Elem())
	case reflect.Map:
		return "{" + word(t.Elem())
	case reflect.Struct:
		visit(t)
		return "@" + named(t)
	}
	panic("no word for " + t.String())
}

func visit(t reflect.Type) {
	name := named(t)
	if _, seen := structs[name]; seen {
		return
	}
	structs[name] = nil
	fields := []any{}
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("json")
		if !ok || tag == "-" {
			continue
		}
		parts := strings.Split(tag, ",")
		flags := ""
		for _, p := range parts[1:] {
			switch p {
			case "omitempty":
				flags += "o"
			case "omitzero":
				flags += "z"
			case "inline":
				flags += "i"
			}
		}
		number := 0
		if pb := strings.Split(f.Tag.Get("protobuf"), ","); len(pb) > 1 {
			number, _ = strconv.Atoi(pb[1])
		}
		fields = append(fields, []any{parts[0], number, word(f.Type), flags})
	}
	structs[name] = fields
}

func main() {
	roots := []any{
		corev1.Namespace{}, corev1.Secret{}, corev1.ConfigMap{}, corev1.Node{}, corev1.Pod{}, corev1.Event{},
		corev1.ServiceAccount{}, corev1.Service{}, corev1.Endpoints{}, corev1.PersistentVolume{},
		corev1.PersistentVolumeClaim{}, corev1.LimitRange{}, corev1.ResourceQuota{}, corev1.PodTemplate{},
		corev1.ReplicationController{}, corev1.Binding{},
		appsv1.Deployment{}, appsv1.ReplicaSet{}, appsv1.DaemonSet{}, appsv1.StatefulSet{}, appsv1.ControllerRevision{},
		batchv1.Job{}, batchv1.CronJob{}, autoscalingv1.Scale{}, autoscalingv1.HorizontalPodAutoscaler{},
		autoscalingv2.HorizontalPodAutoscaler{},
		certificatesv1.CertificateSigningRequest{}, coordinationv1.Lease{}, discoveryv1.EndpointSlice{}, eventsv1.Event{},
		networkingv1.Ingress{}, networkingv1.IngressClass{}, networkingv1.NetworkPolicy{}, nodev1.RuntimeClass{},
		policyv1.PodDisruptionBudget{}, policyv1.Eviction{},
		rbacv1.Role{}, rbacv1.RoleBinding{}, rbacv1.ClusterRole{}, rbacv1.ClusterRoleBinding{},
		schedulingv1.PriorityClass{}, storagev1.StorageClass{}, storagev1.VolumeAttachment{}, storagev1.CSINode{},
		storagev1.CSIDriver{}, storagev1.CSIStorageCapacity{},
		authenticationv1.TokenRequest{}, authenticationv1.TokenReview{}, authenticationv1.SelfSubjectReview{},
		authorizationv1.SubjectAccessReview{}, authorizationv1.SelfSubjectAccessReview{},
		authorizationv1.SelfSubjectRulesReview{}, authorizationv1.LocalSubjectAccessReview{},
		apiextensionsv1.CustomResourceDefinition{}, apiextensionsv1.JSONSchemaProps{},
		metav1.DeleteOptions{}, metav1.Status{}, metav1.LabelSelector{},
	}
	for _, root := range roots {
		visit(reflect.TypeOf(root))
	}
	if err := json.NewEncoder(os.Stdout).Encode(structs); err != nil {
		panic(err)
	}
}
