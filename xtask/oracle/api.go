package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// apiServer is as much of an API server as kube-proxy needs: lists and watches of objects that stay as they are.
type apiServer struct {
	objects []object
	// open is closed when Services and EndpointSlices may be had.
	open   chan struct{}
	server http.Server
}

// kinds of objects, and whether they are held back.
var kinds = map[string]struct {
	kind, version string
	held          bool
}{
	"/api/v1/nodes": {"Node", "v1", false},
	"/apis/networking.k8s.io/v1/servicecidrs":  {"ServiceCIDR", "networking.k8s.io/v1", false},
	"/api/v1/services":                         {"Service", "v1", true},
	"/apis/discovery.k8s.io/v1/endpointslices": {"EndpointSlice", "discovery.k8s.io/v1", true},
}

// version of all objects and lists.
const version = "1"

func newAPIServer(s *state, listener net.Listener) *apiServer {
	a := &apiServer{open: make(chan struct{})}
	for i, own := range s.Objects {
		o := &unstructured.Unstructured{Object: own}
		o.SetResourceVersion(version)
		o.SetUID(typesUID(i))
		a.objects = append(a.objects, o.Object)
	}
	a.server.Handler = a
	go a.server.Serve(listener)
	return a
}

func (a *apiServer) close() { a.server.Close() }

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	asked, known := kinds[r.URL.Path]
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"apiVersion":"events.k8s.io/v1","kind":"Event"}`)
		return
	case !known || r.Method != http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
		return
	}
	if asked.held {
		select {
		case <-a.open:
		case <-r.Context().Done():
			return
		}
	}
	query := r.URL.Query()
	items, err := a.selected(asked.kind, query.Get("labelSelector"), query.Get("fieldSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if query.Get("watch") == "" {
		json.NewEncoder(w).Encode(object{
			"apiVersion": asked.version, "kind": asked.kind + "List",
			"metadata": object{"resourceVersion": version}, "items": items,
		})
		return
	}
	if query.Get("sendInitialEvents") == "true" {
		events := json.NewEncoder(w)
		for _, item := range items {
			events.Encode(object{"type": "ADDED", "object": item})
		}
		events.Encode(object{"type": "BOOKMARK", "object": object{
			"apiVersion": asked.version, "kind": asked.kind,
			"metadata": object{"resourceVersion": version, "annotations": object{metav1.InitialEventsAnnotationKey: "true"}},
		}})
	}
	http.NewResponseController(w).Flush()
	// Nothing ever happens.
	<-r.Context().Done()
}

func (a *apiServer) selected(kind, labelText, fieldText string) ([]object, error) {
	byLabel, err := labels.Parse(labelText)
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(fieldText)
	if err != nil {
		return nil, err
	}
	found := []object{}
	for _, own := range a.objects {
		o := unstructured.Unstructured{Object: own}
		clusterIP, _, _ := unstructured.NestedString(own, "spec", "clusterIP")
		kindOf, _, _ := unstructured.NestedString(own, "spec", "type")
		has := fields.Set{
			"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace(),
			"spec.clusterIP": clusterIP, "spec.type": kindOf,
		}
		if o.GetKind() == kind && byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(has) {
			found = append(found, own)
		}
	}
	return found, nil
}
