// Loads the packages of this bundle in the plan's order and runs them one after another. Add the bundle's folder to the app.
import CoreML
import Foundation

struct Tensor: Decodable { let name: String; let file_name: String }
struct Segment: Decodable {
    let index: Int; let file: String; let inputs: [Tensor]; let outputs: [Tensor]; let settings: [String: String]
}
struct Manifest: Decodable { let schema_version: Int; let segments: [Segment]; let outputs: [Tensor] }
enum BundleError: Error { case schema(Int) }

final class PlannedModel {
    private let manifest: Manifest
    private var models: [MLModel] = []

    init(bundle: URL) throws {
        manifest = try JSONDecoder().decode(Manifest.self, from: Data(contentsOf: bundle.appendingPathComponent("manifest.json")))
        guard manifest.schema_version == 1 else { throw BundleError.schema(manifest.schema_version) }
        for segment in manifest.segments {
            let configuration = MLModelConfiguration()
            switch segment.settings["computeUnits"] {
            case "cpuAndNeuralEngine": configuration.computeUnits = .cpuAndNeuralEngine
            case "cpuAndGPU": configuration.computeUnits = .cpuAndGPU
            default: configuration.computeUnits = .cpuOnly
            }
            let compiled = try MLModel.compileModel(at: bundle.appendingPathComponent(segment.file))
            models.append(try MLModel(contentsOf: compiled, configuration: configuration))
        }
    }

    func run(_ inputs: [String: MLMultiArray]) throws -> [String: MLMultiArray] {
        var values = inputs
        for (segment, model) in zip(manifest.segments, models) {
            let pairs = segment.inputs.map { ($0.file_name, values[$0.name]! as Any) }
            let feeds = try MLDictionaryFeatureProvider(dictionary: Dictionary(uniqueKeysWithValues: pairs))
            let results = try model.prediction(from: feeds)
            for output in segment.outputs { values[output.name] = results.featureValue(for: output.file_name)!.multiArrayValue! }
        }
        return Dictionary(uniqueKeysWithValues: manifest.outputs.map { ($0.name, values[$0.name]!) })
    }
}
