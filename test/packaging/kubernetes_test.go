package packaging

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/config"
)

// The part of Kubernetes' API that the manifests use; its names are those of
// k8s.io/api, of which version 0.37 decoded them strictly.
type (
	object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       spec
	}
	meta struct {
		Name   string
		Labels map[string]string
	}
	selector struct {
		MatchLabels      map[string]string `yaml:"matchLabels"`
		MatchExpressions []struct {
			Key, Operator string
			Values        []string
		} `yaml:"matchExpressions"`
	}
	// spec is that of a Service, StatefulSet, PodDisruptionBudget or NetworkPolicy.
	spec struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 any
		Ports                    []port
		ServiceName              string `yaml:"serviceName"`
		Replicas                 int
		PodManagementPolicy      string `yaml:"podManagementPolicy"`
		Template                 struct {
			Metadata meta
			Spec     pod
		}
		VolumeClaimTemplates []struct {
			Metadata meta
			Spec     struct {
				AccessModes []string `yaml:"accessModes"`
				Resources   resources
			}
		} `yaml:"volumeClaimTemplates"`
		MaxUnavailable int      `yaml:"maxUnavailable"`
		PodSelector    selector `yaml:"podSelector"`
		PolicyTypes    []string `yaml:"policyTypes"`
		Ingress        []ingress
	}
	port struct {
		Name       string
		Port       int
		TargetPort string `yaml:"targetPort"`
	}
	ingress struct {
		From []struct {
			PodSelector selector `yaml:"podSelector"`
		}
		Ports []port
	}
	resources struct{ Requests, Limits map[string]string }
	pod       struct {
		AutomountServiceAccountToken  bool           `yaml:"automountServiceAccountToken"`
		TerminationGracePeriodSeconds int            `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               map[string]any `yaml:"securityContext"`
		Affinity                      any
		Containers                    []container
		Volumes                       []map[string]any
	}
	container struct {
		Name, Image string
		Args        []string
		Env         []variable
		Ports       []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		StartupProbe    probe `yaml:"startupProbe"`
		ReadinessProbe  probe `yaml:"readinessProbe"`
		LivenessProbe   probe `yaml:"livenessProbe"`
		Resources       resources
		SecurityContext struct {
			AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string }
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
	variable struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	probe struct {
		HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
		PeriodSeconds    int                         `yaml:"periodSeconds"`
		TimeoutSeconds   int                         `yaml:"timeoutSeconds"`
		FailureThreshold int                         `yaml:"failureThreshold"`
	}
)

const manifests = "packaging/kubernetes"

// TestManifests: what the manifests say to the program is understood, and name servers,
// brokers, ports, volumes and selectors fit together.
func TestManifests(t *testing.T) {
	kustomization := documents[struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Labels     []struct{ Pairs map[string]string }
		Resources  []string
	}](t, manifests+"/kustomization.yaml")
	found, err := os.ReadDir(filepath.Join(root, manifests))
	require.NoError(t, err)
	require.Len(t, kustomization[0].Resources, len(found)-1, "every other file is a resource")

	sets, names := map[string]object{}, map[string][]string{}
	for _, file := range kustomization[0].Resources {
		for _, o := range documents[object](t, manifests+"/"+file) {
			names[o.Kind] = append(names[o.Kind], o.Metadata.Name)
			if o.Kind == "StatefulSet" {
				sets[o.Metadata.Name] = o
			}
			if o.Kind != "NetworkPolicy" {
				require.Contains(t, fmt.Sprint(o.Spec.Selector), "app.kubernetes.io/name:"+o.Metadata.Name)
			}
		}
	}
	both := []string{"hardpoint-namesrv", "hardpoint-broker"}
	for _, kind := range []string{"Service", "StatefulSet", "PodDisruptionBudget"} {
		require.ElementsMatch(t, both, names[kind], kind)
	}
	for name, s := range sets {
		t.Run(name, func(t *testing.T) { setFits(t, s, sets["hardpoint-namesrv"].Spec.Replicas) })
	}
}

// setFits checks a StatefulSet.
func setFits(t *testing.T, s object, namesrvs int) {
	t.Helper()
	name, p := s.Metadata.Name, s.Spec.Template.Spec
	require.Equal(t, name, s.Spec.ServiceName)
	require.Equal(t, name, s.Spec.Template.Metadata.Labels["app.kubernetes.io/name"])
	require.Len(t, p.Containers, 1)
	c := p.Containers[0]

	i := readImage(t)
	env := map[string]string{}
	for key, value := range i.env {
		env[key] = value
	}
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom.FieldRef.FieldPath != "" {
			value = map[string]string{"status.podIP": "192.0.2.10", "metadata.name": name + "-0"}[v.ValueFrom.FieldRef.FieldPath]
			require.NotEmpty(t, value, v.Name)
		}
		if from, ok := strings.CutPrefix(value, "$("); ok {
			value = env[strings.TrimSuffix(from, ")")]
			require.NotEmpty(t, value, "%s: what it refers to stands before it", v.Name)
		}
		env[v.Name] = value
	}
	understood(t, c.Args, env)
	l, err := config.Load(config.Options{Mode: modeOf(c.Args[0]), Env: pairs(env)})
	require.NoError(t, err)

	ports := map[string]int{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	require.Equal(t, ":"+strconv.Itoa(ports["admin"]), l.Config.Node.AdminListen, "probes come from outside of the pod")
	require.Equal(t, struct{ Path, Port string }{"/readyz", "admin"}, c.StartupProbe.HTTPGet)
	require.Equal(t, c.StartupProbe.HTTPGet, c.ReadinessProbe.HTTPGet)
	require.Equal(t, struct{ Path, Port string }{"/healthz", "admin"}, c.LivenessProbe.HTTPGet)
	if c.Args[0] == "broker" {
		require.Equal(t, ":"+strconv.Itoa(ports["broker"]), l.Config.Network.Listen)
		require.Equal(t, ports["broker"]-2, ports["broker-vip"])
		require.Equal(t, name+"-0", l.Config.Broker.Name, "each pod is a group")
		require.Equal(t, "192.0.2.10", l.Config.Network.Advertise)
		var want []string
		for n := range namesrvs {
			want = append(want, fmt.Sprintf("hardpoint-namesrv-%d.hardpoint-namesrv:9876", n))
		}
		require.Equal(t, want, l.Config.Broker.NamesrvAddrs)
	} else {
		require.Equal(t, ":"+strconv.Itoa(ports["namesrv"]), l.Config.Namesrv.Listen)
	}

	require.GreaterOrEqual(t, time.Duration(p.TerminationGracePeriodSeconds)*time.Second, stopTime(t, c.Args[0]))
	require.Equal(t, i.user, fmt.Sprintf("%v:%v", p.SecurityContext["runAsUser"], p.SecurityContext["runAsGroup"]))
	require.True(t, c.SecurityContext.ReadOnlyRootFilesystem)
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounted[m.MountPath] = m.Name
	}
	require.Equal(t, s.Spec.VolumeClaimTemplates[0].Metadata.Name, mounted[l.Config.Node.Data])
	require.Equal(t, p.Volumes[0]["name"], mounted["/tmp"], "plugins that are processes need it")
	require.Less(t, bytesOf(t, env["GOMEMLIMIT"]), bytesOf(t, c.Resources.Limits["memory"]), "Go collects before the container is killed")
}

func bytesOf(t *testing.T, text string) int64 {
	t.Helper()
	if strings.HasSuffix(text, "i") {
		text += "B"
	}
	n, err := config.ParseSize(text)
	require.NoError(t, err)
	return n
}
